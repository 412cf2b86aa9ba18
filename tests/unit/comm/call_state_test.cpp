// In which call a rank is, and when it counts as blocked.
#include "comm/control/call_state.hpp"

#include <string>
#include <thread>

#include "comm/transport.hpp"
#include "support/check.hpp"

namespace ddp::test {
namespace {

using Exchange = BlockedCall::Exchange;

void every_call_has_its_name(void**) {
  for (uint16_t at = 1; at <= static_cast<uint16_t>(kLastUserCall); ++at) {
    const auto call = static_cast<UserCall>(at);
    expect_contains(name_of(call), "ddp_");
    expect(user_call(name_of(call)) == call, name_of(call));
  }
  expect(user_call("ddp_nothing") == UserCall::kNone, "no such function");
  expect_equal(describe_call(UserCall::kCommit, "model"), std::string("ddp_model_commit (\"model\")"), "with an exchange");
  expect_equal(describe_call(UserCall::kSave, "ddp_state_save"), std::string("ddp_state_save"), "named alike");
  expect_equal(describe_call(UserCall::kNone, "plan"), std::string("\"plan\""), "no call");
}

void a_rank_is_blocked_while_its_caller_waits(void**) {
  CallState state;
  state.join_collective(4);
  state.join_gather(2);
  expect(!state.blocked().has_value(), "in no call");
  {
    const CallState::In outer(state, UserCall::kCommit);
    const CallState::In inner(state, UserCall::kBroadcast);
    expect_equal(state.inside(), 1, "one thread in a call");
    expect(!state.blocked().has_value(), "computes");
    const CallState::Waiting waiting(state, Exchange::kCollective, 4);
    const auto blocked = state.blocked();
    expect(blocked == BlockedCall{UserCall::kCommit, Exchange::kCollective, 4, 4, 2}, "what it waits in, by the name of the outer call");
  }
  expect(!state.blocked().has_value() && state.inside() == 0, "it is over");
}

void a_wait_that_is_not_counted_is_none(void**) {
  CallState state;
  const CallState::In in(state, UserCall::kBarrier);
  const CallState::Waiting waiting(state, Exchange::kCollective, 0);
  expect(!state.blocked().has_value(), "nobody knows what it waits in");
}

void a_rank_whose_lane_waits_is_blocked_only_with_its_caller(void**) {
  CallState state;
  state.join_collective(9);
  const auto with_lane_at = [&](uint64_t number, auto&& look) {
    std::thread([&] {
      const CallState::Waiting waiting(state, Exchange::kCollective, number);
      look();
    }).join();
  };
  with_lane_at(7, [&] { expect(!state.blocked().has_value(), "the program computes"); });
  const CallState::In in(state, UserCall::kEndBackward);
  with_lane_at(7, [&] { expect(!state.blocked().has_value(), "the caller starts buckets"); });
  const CallState::WaitingForLane waiting(state);
  expect(!state.blocked().has_value(), "the lane works");
  with_lane_at(7, [&] { expect(state.blocked() == BlockedCall{UserCall::kEndBackward, Exchange::kCollective, 7, 9, 0}, "both wait"); });
}

void a_rank_with_two_threads_in_calls_is_not_blocked(void**) {
  CallState state;
  const CallState::In in(state, UserCall::kBarrier);
  const CallState::Waiting waiting(state, Exchange::kCollective, 1);
  expect(state.blocked().has_value(), "one thread");
  std::thread([&] {
    const CallState::In other(state, UserCall::kCommit);
    expect(!state.blocked().has_value(), "the other one may still come");
    expect(!state.is_caller(), "the second thread");
  }).join();
  expect(state.blocked().has_value(), "one thread again");
}

void ranks_in_one_pass_compare_equal(void**) {
  CallState state;
  Stamp library_thread;
  sign(library_thread, state);
  {
    const CallState::In in(state, UserCall::kSkipBackward, 3);
    Stamp stamp;
    sign(stamp, state);
    expect(stamp == library_thread, "part of a pass");
    expect_contains(stamp.describe(), "ddp_model_skip_backward");
  }
  const CallState::In in(state, UserCall::kJoin, 3);
  const CallState::Answering answering(state, UserCall::kSyncBuffers);
  Stamp stamp;
  sign(stamp, state);
  expect(stamp.caller.call == UserCall::kSyncBuffers && stamp.plan_hash == 3 && !(stamp == library_thread), "answers another call");
}

void only_a_wait_that_lasts_is_told_and_its_end(void**) {
  CallState state;
  CallWatch watch;
  int64_t now = 0;
  const auto look = [&] { return watch.look(state, now += CallWatch::kLookNs); };
  const CallState::In in(state, UserCall::kBarrier);
  expect(!look().has_value(), "nothing to tell");
  {
    const CallState::Waiting waiting(state, Exchange::kGather, 3);
    expect(!look().has_value(), "it may be short");
    expect(!watch.look(state, now + 1).has_value(), "too early to look again");
    const auto news = look();
    expect(news.has_value() && news->blocked.has_value() && news->blocked->number == 3, "it lasts");
    expect(!look().has_value(), "told already");
  }
  const CallState::Waiting waiting(state, Exchange::kGather, 4);
  const auto end = look();
  expect(end.has_value() && !end->blocked.has_value(), "the first wait is over");
  expect(look()->blocked->number == 4, "the next one lasts");
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(every_call_has_its_name),
      ddp_test(a_rank_is_blocked_while_its_caller_waits),
      ddp_test(a_wait_that_is_not_counted_is_none),
      ddp_test(a_rank_whose_lane_waits_is_blocked_only_with_its_caller),
      ddp_test(a_rank_with_two_threads_in_calls_is_not_blocked),
      ddp_test(ranks_in_one_pass_compare_equal),
      ddp_test(only_a_wait_that_lasts_is_told_and_its_end),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
