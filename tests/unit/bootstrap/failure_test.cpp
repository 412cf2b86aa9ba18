// SPDX-License-Identifier: Apache-2.0
// The first cause stays, and wakes once.
#include "bootstrap/failure.hpp"

#include "support/check.hpp"

const Error kFirst(DDP_ERROR_PEER_FAILED, "rank 1 is gone");
const Error kSecond(DDP_ERROR_TIMED_OUT, "rank 2 is late");

ddp_case(the_first_cause_stays) {
  bootstrap::Failure failure;
  failure.check();
  expect(!failure.broken() && !failure.cause(), "whole");
  expect(failure.set(kFirst) && !failure.set(kSecond), "only the first counts");
  expect_equal(expect_error(DDP_ERROR_PEER_FAILED, [&] { failure.check(); }), kFirst.text(), "the text");
}

ddp_case(wakers_are_called_once) {
  bootstrap::Failure failure;
  int calls = 0;
  failure.add_waker([&] { ++calls; });
  failure.set(kFirst);
  failure.set(kSecond);
  expect_equal(calls, 1, "calls");
  failure.add_waker([&] { ++calls; });
  expect_equal(calls, 2, "a late one is called at once");
}

ddp_case(a_goodbye_wakes_nobody_but_a_later_fault_does) {
  bootstrap::Failure failure;
  int calls = 0;
  failure.add_waker([&] { ++calls; });
  expect(failure.set(kFirst, bootstrap::Failure::Wake::kNo), "first");
  expect(failure.broken() && calls == 0, "broken, nobody woken");
  expect(!failure.set(kSecond), "the cause stays");
  expect_equal(calls, 1, "now woken");
  expect_equal(failure.cause()->text(), kFirst.text(), "the cause");
}

ddp_case(a_fault_after_a_goodbye_is_told_to_those_that_need_no_rank_that_left) {
  bootstrap::Failure failure;
  failure.check_fault();
  failure.set(kFirst, bootstrap::Failure::Wake::kNo);
  failure.check_fault();
  failure.set(kSecond);
  failure.set(Error(DDP_ERROR_ABORTED, "a third"));
  expect_equal(expect_error(DDP_ERROR_TIMED_OUT, [&] { failure.check_fault(); }), kSecond.text(), "the fault");
  expect_equal(expect_error(DDP_ERROR_PEER_FAILED, [&] { failure.check(); }), kFirst.text(), "the first cause");
}

ddp_case(one_of_many_threads_is_first) {
  bootstrap::Failure failure;
  std::atomic<int> firsts{0};
  std::atomic<int> calls{0};
  failure.add_waker([&] { ++calls; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back([&] { firsts += failure.set(kFirst) ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  expect(firsts == 1 && calls == 1, "one first, one call");
}
