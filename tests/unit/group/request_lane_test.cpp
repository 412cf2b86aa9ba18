// SPDX-License-Identifier: Apache-2.0
#include "group/request_lane.hpp"

#include "support/check.hpp"

using bootstrap::CallState;
using group::Request;
using group::RequestLane;
using group::RequestPtr;
using Begin = RequestLane::Begin;

constexpr Begin kBoth[] = {Begin::kAtOnce, Begin::kLater};

/// Waits for a condition, 20 s at most.
template <class Condition>
void expect_soon(const Condition& condition, const char* what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  expect(condition(), what);
}

ddp_case(all_run_once_in_their_order) {
  for (const Begin begin : kBoth) {
    CallState calls;
    const auto lane = std::make_shared<RequestLane>(calls, begin);
    std::vector<int> ran;
    std::vector<RequestPtr> requests;
    for (int n = 0; n < 100; ++n) requests.push_back(lane->post([&ran, n] { ran.push_back(n); }));
    expect(requests[70]->wait(Request::kForEver), "one in the middle has ended");
    expect(requests[30]->ended(), "and one before it");
    expect(requests[99]->wait(Request::kForEver), "the last");
    expect(lane->is_idle(), "nothing is left");
    expect_equal(ran.size(), size_t{100}, "each ran once");
    for (int n = 0; n < 100; ++n) expect_equal(ran[static_cast<size_t>(n)], n, "in order");
    lane->stop(Error());
  }
}

ddp_case(the_thread_that_waits_works_where_nothing_begins_at_once) {
  CallState calls;
  const auto lane = std::make_shared<RequestLane>(calls, Begin::kLater);
  int here = 0;
  for (int n = 0; n < 1000; ++n) {
    std::thread::id by;
    expect(lane->post([&by] { by = std::this_thread::get_id(); })->wait(Request::kForEver), "it has ended");
    if (by == std::this_thread::get_id()) ++here;
  }
  expect(here > 900, "of 1000 this thread ran " + std::to_string(here));
  lane->stop(Error());
}

ddp_case(what_nobody_waits_for_runs) {
  for (const Begin begin : kBoth) {
    CallState calls;
    const auto lane = std::make_shared<RequestLane>(calls, begin);
    const RequestPtr request = lane->post([] {});
    expect_soon([&] { return request->ended(); }, "by the thread");
    const RequestPtr tested = lane->post([] {});
    expect_soon([&] { return tested->test(); }, "after a test");
    lane->stop(Error());
  }
}

ddp_case(an_error_is_that_of_its_request_alone) {
  for (const Begin begin : kBoth) {
    CallState calls;
    const auto lane = std::make_shared<RequestLane>(calls, begin);
    const RequestPtr bad = lane->post([] { throw Error(DDP_ERROR_MISMATCH, "no"); });
    const RequestPtr good = lane->post([] {});
    expect(good->wait(Request::kForEver), "the next one is not touched");
    for (int n = 0; n < 2; ++n) {
      expect_error(DDP_ERROR_MISMATCH, [&] { static_cast<void>(bad->wait(0)); });
      expect_error(DDP_ERROR_MISMATCH, [&] { static_cast<void>(bad->test()); });
    }
    lane->stop(Error());
  }
}

ddp_case(a_wait_ends_when_time_is_up_and_the_request_stays) {
  for (const Begin begin : kBoth) {
    CallState calls;
    const auto lane = std::make_shared<RequestLane>(calls, begin);
    std::atomic<bool> go{false};
    const RequestPtr slow = lane->post([&] {
      while (!go) std::this_thread::yield();
    });
    expect(!slow->wait(20), "it has not ended");
    expect(!slow->test(), "nor now");
    int32_t found = -2;
    const RequestPtr next = lane->post([] {});
    expect_equal(group::wait_any({next, slow}, 20, &found), -1, "none has");
    go = true;
    expect_equal(group::wait_any({next, slow}, Request::kForEver, &found) >= 0, true, "one of them");
    expect(next->wait(20'000), "both in the end");
    lane->stop(Error());
  }
}

ddp_case(a_limit_may_be_longer_than_the_clock_can_tell) {
  for (const Begin begin : kBoth) {
    CallState calls;
    const auto lane = std::make_shared<RequestLane>(calls, begin);
    std::atomic<bool> runs{false}, go{false};
    const RequestPtr slow = lane->post([&] {
      runs = true;
      while (!go) std::this_thread::yield();
    });
    for (const int64_t ms : {0, 1}) expect(!slow->wait(ms), "it has not ended within " + std::to_string(ms) + " ms");
    std::thread lets_go([&] {
      expect_soon([&] { return runs.load(); }, "it runs");
      go = true;
    });
    expect(slow->wait(INT64_MAX), "it has ended");
    lets_go.join();
    lane->stop(Error());
  }
}

ddp_case(a_stop_ends_what_has_not_begun) {
  for (const Begin begin : kBoth) {
    CallState calls;
    auto lane = std::make_shared<RequestLane>(calls, begin);
    std::atomic<bool> runs{false}, go{false};
    const RequestPtr first = lane->post([&] {
      runs = true;
      while (!go) std::this_thread::yield();
    });
    const RequestPtr second = lane->post([] {});
    static_cast<void>(first->test());  // now at the latest
    expect_soon([&] { return runs.load(); }, "the first runs");
    std::thread stops([&] { lane->stop(Error(DDP_ERROR_ABORTED, "over")); });
    go = true;
    stops.join();
    expect(first->ended() && second->ended(), "both have ended");
    expect_error(DDP_ERROR_ABORTED, [&] { static_cast<void>(lane->post([] {})); });
    lane.reset();
    expect(first->ended(), "a request outlives the lane");
  }
}
