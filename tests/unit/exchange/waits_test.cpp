// SPDX-License-Identifier: Apache-2.0
// Which part of a wait costs the program something, and the rank for which it is counted.
#include "exchange/waits.hpp"

#include "os/clock.hpp"
#include "support/check.hpp"

using bootstrap::CallState;
using collective::Late;
using collective::Waits;

ddp_case(a_wait_of_the_caller_is_counted_whole) {
  CallState calls;
  Waits waits(calls, 3);
  const CallState::In in(calls, bootstrap::UserCall::kBarrier);
  waits.note({2, 0, 100, 350});
  waits.note({2, 4, 400, 450});
  waits.note({1, 0, 500, 500});
  expect_equal(waits.waited_ns(2), int64_t{300}, "both waits");
  expect_equal(waits.waited_ns(1), int64_t{0}, "none");
  expect_equal(waits.ranks(), 3, "ranks");
}

ddp_case(what_a_rank_waited_for_itself_is_passed_on) {
  CallState calls;
  Waits waits(calls, 3);
  const CallState::In in(calls, bootstrap::UserCall::kBarrier);
  waits.note({0, 0, 100, 300}, Late{2, 150});
  expect_equal(waits.waited_ns(0), int64_t{50}, "it came late too");
  expect_equal(waits.waited_ns(2), int64_t{150}, "for whom it waited");
  waits.note({0, 0, 300, 400}, Late{2, 1'000});
  expect_equal(waits.waited_ns(0), int64_t{50}, "it had waited for longer than this rank");
  expect_equal(waits.waited_ns(2), int64_t{250}, "no more than the wait");
  waits.note({0, 0, 400, 500}, Late{-1, 0});
  expect_equal(waits.waited_ns(0), int64_t{150}, "it had waited for nobody");
}

ddp_case(a_record_that_cannot_be_right_changes_nothing_else) {
  CallState calls;
  Waits waits(calls, 2);
  const CallState::In in(calls, bootstrap::UserCall::kBarrier);
  waits.note({1, 0, 100, 200}, Late{7, 60});
  waits.note({1, 0, 200, 300}, Late{-5, -60});
  expect_equal(waits.waited_ns(1), int64_t{140}, "what is left");
  expect_equal(waits.waited_ns(0), int64_t{0}, "nobody else");
}

ddp_case(a_thread_is_counted_from_when_the_program_waits_for_it) {
  CallState calls;
  Waits waits(calls, 2);
  const auto on_a_thread = [&](int64_t begin, int64_t end) { std::thread([&] { waits.note({1, 3, begin, end}); }).join(); };
  on_a_thread(100, 200);
  expect_equal(waits.waited_ns(1), int64_t{0}, "the program computes");
  const int64_t before = os::now_ns();
  {
    const CallState::WaitingForQueue waiting(calls, 3);
    const int64_t after = os::now_ns();
    on_a_thread(before - 1'000'000, after + 1'000);
    const int64_t counted = waits.waited_ns(1);
    expect(counted >= 1'000 && counted <= after - before + 1'000, "from when it began to wait");
    std::thread([&] { waits.note({0, 2, before, after}); }).join();
    expect_equal(waits.waited_ns(0), int64_t{0}, "it waits for another channel");
    on_a_thread(before - 2'000, before - 1'000);
    expect_equal(waits.waited_ns(1), counted, "over before it began to wait");
  }
  const int64_t counted = waits.waited_ns(1);
  on_a_thread(before, os::now_ns());
  expect_equal(waits.waited_ns(1), counted, "it computes again");
}
