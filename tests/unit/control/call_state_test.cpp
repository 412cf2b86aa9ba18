// SPDX-License-Identifier: Apache-2.0
// In which call a rank is, and when it counts as blocked.
#include "control/call_state.hpp"

#include "exchange/transport.hpp"
#include "support/check.hpp"

using Exchange = bootstrap::BlockedCall::Exchange;

ddp_case(every_call_has_its_name) {
  for (uint16_t at = 1; at <= static_cast<uint16_t>(bootstrap::kLastUserCall); ++at) {
    const auto call = static_cast<bootstrap::UserCall>(at);
    expect_contains(bootstrap::name_of(call), "ddp_");
    expect(bootstrap::user_call(bootstrap::name_of(call)) == call, bootstrap::name_of(call));
  }
  expect(bootstrap::user_call("ddp_nothing") == bootstrap::UserCall::kNone, "no such function");
  expect_equal(bootstrap::describe_call(bootstrap::UserCall::kCommit, "model"), std::string("ddp_model_commit (\"model\")"),
               "with an exchange");
  expect_equal(bootstrap::describe_call(bootstrap::UserCall::kSave, "ddp_state_save"), std::string("ddp_state_save"),
               "named alike");
  expect_equal(bootstrap::describe_call(bootstrap::UserCall::kNone, "plan"), std::string("\"plan\""), "no call");
}

ddp_case(a_rank_is_blocked_while_its_caller_waits) {
  bootstrap::CallState state;
  state.join_collective(4);
  state.join_gather(2);
  expect(!state.blocked().has_value(), "in no call");
  {
    const bootstrap::CallState::In outer(state, bootstrap::UserCall::kCommit);
    const bootstrap::CallState::In inner(state, bootstrap::UserCall::kBroadcast);
    expect_equal(state.inside(), 1, "one thread in a call");
    expect(!state.blocked().has_value(), "computes");
    const bootstrap::CallState::Waiting waiting(state, Exchange::kCollective, 4);
    const auto blocked = state.blocked();
    expect(blocked == bootstrap::BlockedCall{bootstrap::UserCall::kCommit, Exchange::kCollective, 4, {4}, 2, 0},
           "what it waits in, by the name of the outer call");
  }
  expect(!state.blocked().has_value() && state.inside() == 0, "it is over");
}

ddp_case(a_wait_that_is_not_counted_is_none) {
  bootstrap::CallState state;
  const bootstrap::CallState::In in(state, bootstrap::UserCall::kBarrier);
  const bootstrap::CallState::Waiting waiting(state, Exchange::kCollective, 0);
  expect(!state.blocked().has_value(), "nobody knows what it waits in");
}

ddp_case(a_rank_whose_queue_waits_is_blocked_only_with_its_caller) {
  bootstrap::CallState state;
  state.join_collective(9);
  const auto with_lane_at = [&](uint64_t number, auto&& look) {
    std::thread([&] {
      const bootstrap::CallState::Waiting waiting(state, Exchange::kCollective, number);
      look();
    }).join();
  };
  with_lane_at(7, [&] { expect(!state.blocked().has_value(), "the program computes"); });
  const bootstrap::CallState::In in(state, bootstrap::UserCall::kEndBackward);
  with_lane_at(7, [&] { expect(!state.blocked().has_value(), "the caller starts buckets"); });
  const bootstrap::CallState::WaitingForQueue waiting(state);
  expect(!state.blocked().has_value(), "the lane works");
  with_lane_at(7, [&] {
    expect(state.blocked() == bootstrap::BlockedCall{bootstrap::UserCall::kEndBackward, Exchange::kCollective, 7, {9}, 0, 0},
           "both wait");
  });
}

/// Else a rank whose queue has another bucket to come to would be taken for one that never comes.
ddp_case(a_queue_that_works_joins_what_is_started) {
  bootstrap::CallState state;
  state.join_collective(4, 0);
  state.join_collective(2, 1);
  state.set_queue_works(1, true);
  const bootstrap::CallState::In in(state, bootstrap::UserCall::kEndBackward);
  const bootstrap::CallState::Waiting waiting(state, Exchange::kCollective, 4, 0);
  expect(state.blocked() ==
             bootstrap::BlockedCall{bootstrap::UserCall::kEndBackward, Exchange::kCollective, 4, {4, UINT64_MAX}, 0, 0},
         "all of channel 1");
  state.set_queue_works(1, false);
  expect(
      state.blocked() == bootstrap::BlockedCall{bootstrap::UserCall::kEndBackward, Exchange::kCollective, 4, {4, 2}, 0, 0},
      "what it has joined");
}

ddp_case(a_rank_with_two_threads_in_calls_is_not_blocked) {
  bootstrap::CallState state;
  const bootstrap::CallState::In in(state, bootstrap::UserCall::kBarrier);
  const bootstrap::CallState::Waiting waiting(state, Exchange::kCollective, 1);
  expect(state.blocked().has_value(), "one thread");
  std::thread([&] {
    const bootstrap::CallState::In other(state, bootstrap::UserCall::kCommit);
    expect(!state.blocked().has_value(), "the other one may still come");
    expect(!state.is_caller(), "the second thread");
  }).join();
  expect(state.blocked().has_value(), "one thread again");
}

ddp_case(ranks_in_one_pass_compare_equal) {
  bootstrap::CallState state;
  collective::Stamp library_thread;
  collective::sign(library_thread, state, 0);
  {
    const bootstrap::CallState::In in(state, bootstrap::UserCall::kSkipBackward, 3);
    collective::Stamp stamp;
    collective::sign(stamp, state, 0);
    expect(stamp == library_thread, "part of a pass");
    expect_contains(stamp.describe(), "ddp_model_skip_backward");
  }
  const bootstrap::CallState::In in(state, bootstrap::UserCall::kJoin, 3);
  const bootstrap::CallState::Answering answering(state, bootstrap::UserCall::kSyncBuffers);
  collective::Stamp stamp;
  collective::sign(stamp, state, 0);
  expect(stamp.caller.call == bootstrap::UserCall::kSyncBuffers && stamp.plan_hash == 3 && !(stamp == library_thread),
         "answers another call");
}

ddp_case(a_request_is_known_by_the_call_that_posted_it) {
  bootstrap::CallState state;
  collective::Stamp by_thread, by_caller;
  const bootstrap::CallState::Requested requested(state, bootstrap::UserCall::kPostAllReduce);
  collective::sign(by_thread, state, bootstrap::kRequestChannel);
  const bootstrap::CallState::In in(state, bootstrap::UserCall::kRequestWait);
  collective::sign(by_caller, state, bootstrap::kRequestChannel);
  expect(by_thread == by_caller, "whichever thread works on it");
  expect_contains(by_caller.describe(), "ddp_group_post_all_reduce");
  const bootstrap::CallState::Waiting waiting(state, bootstrap::BlockedCall::Exchange::kCollective, 4,
                                              bootstrap::kRequestChannel);
  const auto blocked = state.blocked();
  expect(blocked.has_value() && blocked->call == bootstrap::UserCall::kPostAllReduce, "and what it waits for");
  expect(blocked->number == 4 && blocked->channel == bootstrap::kRequestChannel, "where");
}

ddp_case(only_a_wait_that_lasts_is_told_and_its_end) {
  bootstrap::CallState state;
  bootstrap::CallWatch watch;
  int64_t now = 0;
  const auto look = [&] { return watch.look(state, now += bootstrap::CallWatch::kLookNs); };
  const bootstrap::CallState::In in(state, bootstrap::UserCall::kBarrier);
  expect(!look().has_value(), "nothing to tell");
  {
    const bootstrap::CallState::Waiting waiting(state, Exchange::kGather, 3);
    expect(!look().has_value(), "it may be short");
    expect(!watch.look(state, now + 1).has_value(), "too early to look again");
    const auto news = look();
    expect(news.has_value() && news->blocked.has_value() && news->blocked->number == 3, "it lasts");
    expect(!look().has_value(), "told already");
  }
  {
    const bootstrap::CallState::Waiting waiting(state, Exchange::kGather, 4);
    expect(!look().has_value(), "a wait that failed may have a cause that is on its way, which names it");
    expect(look()->blocked->number == 4, "the next one lasts");
  }
  expect(!look().has_value(), "it may have failed");
  const auto end = look();
  expect(end.has_value() && !end->blocked.has_value(), "it is over");
}
