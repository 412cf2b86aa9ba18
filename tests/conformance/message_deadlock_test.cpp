// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other in messages, on every transport: they find out where each rank has one thread, and never
// where something can still come.

#include "ddp/messages.h"
#include "support/check.hpp"
#include "support/different_calls.hpp"

using group::Request;
using group::RequestPtr;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int64_t kLarge = 100'000;
constexpr milliseconds kLong{1'500};  // the check of the group takes 0.3 s

using Body = std::function<void(group::Group&, int)>;

void send(group::Group& group, int32_t peer, int64_t tag, int64_t count = 1, RequestPtr* posting = nullptr) {
  static thread_local std::vector<float> values(kLarge);
  group::send_message(group, flat_tensor(values.data(), DDP_F32, count), peer, tag, nullptr, posting);
}

void receive(group::Group& group, int32_t source, int64_t tag, int64_t count = 1, RequestPtr* posting = nullptr) {
  static thread_local std::vector<float> values(kLarge);
  static_cast<void>(
      group::receive_message(group, flat_tensor(values.data(), DDP_F32, count), source, tag, nullptr, posting));
}

void run_at_with(Path path, int size, int32_t one_thread, const Body& body) {
  if (size < row_of(path).least) return;
  run_at(path, size, [&](const std::string& place, ddp_group_options options, int rank) {
    options.one_thread = one_thread;
    body(*group::Group::create(place.c_str(), options), rank);
  });
}

/// All ranks get the error, well before the group's time limit of 20 s.
void expect_found(Path path, int size, const std::vector<std::string>& words, const Body& body) {
  run_at_with(path, size, 1, [&](group::Group& group, int rank) {
    const auto begin = steady_clock::now();
    const std::string text = expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] {
      group.barrier();  // a slow rank may still be in it when the others are found
      body(group, rank);
      group.barrier();
    });
    expect(steady_clock::now() - begin < std::chrono::seconds(10), "at once");
    for (const std::string& each : words) expect_contains(text, each);
  });
}

/// They end well.
void expect_none(Path path, int size, const Body& body) {
  run_at_with(path, size, 1, [&](group::Group& group, int rank) {
    group.barrier();
    body(group, rank);
    group.barrier();
  });
}

ddp_case_on(kEveryHostPath, two_receives_that_cross_are_found) {
  for (const int size : {2, 3})
    expect_found(
        path, size,
        {"ranks wait for each other: rank 0 (", "waits in ddp_group_receive for a message of rank 1 with tag 3; rank 1",
         "of rank 0 with tag 4; nothing is under way"},
        [](group::Group& group, int rank) {
          if (rank == 0) receive(group, 1, 3);
          if (rank == 1) receive(group, 0, 4);
        });
}

/// The third one gets the error at its next call.
ddp_case_on(kEveryHostPath, two_that_wait_are_found_while_a_third_computes) {
  expect_found(path, 3,
               {"waits in ddp_group_receive for a message of rank 2 with tag 1", "rank 2 (", "of rank 1 with tag 2"},
               [](group::Group& group, int rank) {
                 if (rank == 0) std::this_thread::sleep_for(2 * kLong);
                 if (rank == 1) receive(group, 2, 1);
                 if (rank == 2) receive(group, 1, 2);
               });
}

ddp_case_on(kEveryHostPath, a_receive_against_a_barrier_is_found) {
  expect_found(path, 3, {"ddp_group_receive for a message of rank 1 with tag 7", "waits in ddp_group_barrier for rank 0"},
               [](group::Group& group, int rank) {
                 if (rank == 1) send(group, 0, 6);  // with another tag; it comes
                 if (rank == 0) receive(group, 1, 7);
               });
}

ddp_case_on(kEveryHostPath, a_receive_against_the_end_of_a_pass_is_found) {
  const int size = row_of(path).least > 2 ? row_of(path).least : 2;
  run_at(path, size, [](const std::string& place, ddp_group_options options, int rank) {
    options.one_thread = 1;
    for (const bool threaded : {false, true}) {
      CallWorld world(group::Group::create((place + (threaded ? "#threaded" : "#plain")).c_str(), options), false);
      expect_error(DDP_ERROR_DIFFERENT_CALLS,
                   [&] {
                     if (rank == 0) receive(*world.group, 1, 7);
                     world.pass(threaded ? *world.threaded : *world.plain);
                   },
                   {"ddp_group_receive for a message of rank 1 with tag 7", "waits in ddp_model_end_backward for rank 0"});
    }
  });
}

ddp_case_on(kEveryHostPath, a_ring_of_receives_is_found) {
  expect_found(path, 3, {"of rank 1 with tag 0; rank 1", "of rank 2 with tag 1; rank 2", "of rank 0 with tag 2; nothing"},
               [](group::Group& group, int rank) { receive(group, (rank + 1) % 3, rank); });
}

ddp_case_on(kEveryHostPath, large_sends_that_cross_are_found) {
  expect_found(path, 3, {"waits in ddp_group_send until rank 1 receives what it sends with tag 5"},
               [](group::Group& group, int rank) {
                 if (rank < 2) send(group, 1 - rank, 5, kLarge);
                 if (rank < 2) receive(group, 1 - rank, 5, kLarge);
               });
}

/// Small ones are copied until the receiver has 1 MiB.
ddp_case_on(kEveryHostPath, more_small_messages_than_there_is_room_for_are_found) {
  expect_found(path, 3, {"waits in ddp_group_send until rank"}, [](group::Group& group, int rank) {
    for (int turn = 0; rank < 2 && turn < 200; ++turn) send(group, 1 - rank, turn, 10'000);
  });
}

ddp_case_on(kEveryHostPath, receives_of_any_rank_are_found) {
  expect_found(path, 4, {"waits in ddp_group_receive for a message of any rank with tag 9"},
               [](group::Group& group, int rank) {
                 if (rank == 3) send(group, 0, 8);
                 receive(group, DDP_ANY_SOURCE, 9);
               });
}

ddp_case_on(kEveryHostPath, requests_that_wait_for_each_other_are_found) {
  expect_found(path, 3, {"ddp_group_post_receive for a message of rank", "ddp_group_post_send until rank"},
               [](group::Group& group, int rank) {
                 RequestPtr receives, sends;
                 if (rank == 0) {
                   receive(group, 1, 1, 1, &receives);
                   static_cast<void>(receives->wait(Request::kForEver));
                 } else if (rank == 1) {
                   receive(group, 0, 3, 1, &receives);  // posted, and not what rank 0 sends
                   send(group, 0, 2, kLarge, &sends);
                   static_cast<void>(sends->wait(Request::kForEver));
                 }
               });
}

ddp_case_on(kEveryHostPath, a_slow_sender_is_waited_for) {
  expect_none(path, 3, [](group::Group& group, int rank) {
    for (const int64_t count : {int64_t{1}, kLarge}) {
      if (rank == 0) receive(group, 1, 1, count);
      if (rank == 1) receive(group, 2, 2, count);
      if (rank == 2) std::this_thread::sleep_for(kLong);
      if (rank == 2) send(group, 1, 2, count);
      if (rank == 1) std::this_thread::sleep_for(kLong);
      if (rank == 1) send(group, 0, 1, count);
    }
  });
}

/// Also of those that a rank has sent before it waits for the other one.
ddp_case_on(kEveryHostPath, messages_under_way_are_waited_for) {
  expect_none(path, 3, [](group::Group& group, int rank) {
    if (rank == 1) send(group, 0, 1);
    if (rank == 0) std::this_thread::sleep_for(kLong);
    if (rank == 0) receive(group, 1, 1);
    if (rank == 0) send(group, 1, 2, kLarge);
    if (rank == 1) std::this_thread::sleep_for(kLong);
    if (rank == 1) receive(group, 0, 2, kLarge);
    if (rank == 2) receive(group, DDP_ANY_SOURCE, 3);
    if (rank == 1) std::this_thread::sleep_for(kLong);
    if (rank == 1) send(group, 2, 3);
  });
}

/// What is posted ends while the program's thread waits elsewhere, or computes.
ddp_case_on(kEveryHostPath, what_is_posted_is_waited_for) {
  expect_none(path, 3, [](group::Group& group, int rank) {
    RequestPtr first, second;
    if (rank == 0) {
      send(group, 1, 1, kLarge);  // ends while rank 1 is in the barrier
    } else if (rank == 1) {
      receive(group, 0, 1, kLarge, &first);
      receive(group, 2, 2, kLarge, &second);
      std::this_thread::sleep_for(kLong);
    } else {
      std::this_thread::sleep_for(2 * kLong);
      send(group, 1, 2, kLarge);
    }
    group.barrier();
    if (first != nullptr) expect(first->wait(Request::kForEver) && second->wait(Request::kForEver), "they end");
  });
}

ddp_case_on(kEveryHostPath, a_wait_with_a_limit_ends_by_itself) {
  expect_none(path, 3, [](group::Group& group, int rank) {
    RequestPtr request;
    if (rank == 0) {
      receive(group, 1, 1, 1, &request);
      expect(!request->wait(kLong.count()), "the time is over");
      send(group, 1, 2);
      expect(request->wait(Request::kForEver), "it comes");
    }
    if (rank == 1) {
      receive(group, 0, 2);
      send(group, 0, 1);
    }
  });
}

/// The promise is not made, so another thread sends what the others wait for.
ddp_case_on(kEveryHostPath, without_the_option_another_thread_may_send) {
  run_at_with(path, 3, 0, [](group::Group& group, int rank) {
    group.barrier();
    std::thread sends([&] {
      std::this_thread::sleep_for(kLong);
      send(group, (rank + 1) % 3, 1);
    });
    receive(group, (rank + 2) % 3, 1);
    sends.join();
    group.barrier();
  });
}

/// Rings and pairs of all sizes, some of them slow, with collectives in between.
ddp_case_on(kEveryHostPath, traffic_of_all_kinds_is_no_reason) {
  expect_none(path, 4, [](group::Group& group, int rank) {
    std::mt19937 same(5), own(static_cast<unsigned>(rank));
    const auto begin = steady_clock::now();
    for (int turn = 0; turn < 2000; ++turn) {
      const int next = (rank + 1) % 4, before = (rank + 3) % 4;
      const int64_t count = 1 + static_cast<int64_t>(same() % static_cast<unsigned>(turn % 3 == 0 ? kLarge : 2000));
      const auto kind = same() % 6;
      if (own() % 100 == 0) std::this_thread::sleep_for(milliseconds(own() % 400));
      RequestPtr request;
      if (kind == 0) {
        for (int pair = 0; pair < 2; ++pair) {
          if (rank % 2 == pair) send(group, rank ^ 1, turn, count);
          if (rank % 2 != pair) receive(group, rank ^ 1, turn, count);
        }
      } else if (kind == 1) {
        receive(group, before, turn, count, &request);
        send(group, next, turn, count);
        expect(request->wait(Request::kForEver), "it comes");
      } else if (kind == 2) {
        send(group, next, turn, count, &request);
        receive(group, before, turn, count);
        expect(request->wait(Request::kForEver), "it is received");
      } else if (kind == 3) {
        if (rank == 0) send(group, next, turn, count);
        receive(group, before, turn, count);
        if (rank != 0) send(group, next, turn, count);
      } else if (kind == 4) {
        if (rank != 0) send(group, 0, turn, count);
        for (int from = 1; rank == 0 && from < 4; ++from) receive(group, DDP_ANY_SOURCE, turn, count);
      } else {
        group.barrier();
      }
      if (turn % 50 != 49) continue;
      float over = rank == 0 && steady_clock::now() - begin > std::chrono::seconds(4) ? 1 : 0;
      group.broadcast(flat_tensor(&over, DDP_F32, 1), 0);
      if (over != 0) break;
    }
  });
}

/// The text has the rank behind the other one.
ddp_case_on(kEveryHostPath, a_late_message_is_reported_with_those_behind) {
  if (3 < row_of(path).least) return;
  run_at(path, 3, [](const std::string& place, ddp_group_options options, int rank) {
    options.timeout_ms = rank == 0 ? 2'500 : 20'000;
    const auto group = group::Group::create(place.c_str(), options);
    group->barrier();
    if (rank == 2) std::this_thread::sleep_for(std::chrono::seconds(4));
    expect_error(DDP_ERROR_TIMED_OUT,
                 [&] {
                   if (rank < 2) receive(*group, rank + 1, 1);
                   group->barrier();
                 },
                 {"rank 1 waits for rank 2"});
  });
}
