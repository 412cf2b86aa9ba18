// SPDX-License-Identifier: Apache-2.0
// A rank's state machine alone: its answers to rank 0's messages and to silence. Together with rank 0's:
// control_server_test.

#include "control/client_state.hpp"
#include "support/check.hpp"

constexpr int64_t kMs = 1'000'000;

std::string table_of(int32_t size, int64_t heartbeat_ms = 100, int64_t dead_after_ms = 1'000) {
  bootstrap::messages::Table table{heartbeat_ms, dead_after_ms, {}};
  for (int32_t rank = 0; rank < size; ++rank) {
    bootstrap::Member member;
    member.rank = rank;
    member.host = "h";
    table.members.push_back(member);
  }
  return bootstrap::messages::write(table);
}

bootstrap::ClientState started() {
  bootstrap::Member me;
  me.rank = 1;
  bootstrap::ClientState state({me, 2, 100, 1'000, 0, 0});
  state.start(kMs);
  (void)state.take();
  return state;
}

bootstrap::ClientState running() {
  bootstrap::ClientState state = started();
  state.frame({bootstrap::FrameType::kTable, table_of(2)}, kMs);
  (void)state.take();
  return state;
}

size_t count(const std::vector<bootstrap::ClientAction>& actions, bootstrap::ClientAction::Kind kind) {
  size_t n = 0;
  for (const bootstrap::ClientAction& action : actions) n += action.kind == kind ? 1 : 0;
  return n;
}

ddp_case(a_connection_lost_before_the_group_forms_is_no_failure) {
  bootstrap::ClientState state = started();
  state.closed(2 * kMs);
  const auto actions = state.take();
  expect_equal(count(actions, bootstrap::ClientAction::Kind::kLost), size_t{1}, "lost");
  expect_equal(count(actions, bootstrap::ClientAction::Kind::kFailed), size_t{0}, "failed");
}

ddp_case(tables_that_cannot_be_right_are_refused) {
  for (const std::string& table : {table_of(3), table_of(1), table_of(2, 0, 5), table_of(2, 5, -1), std::string("x")}) {
    bootstrap::ClientState state = started();
    bool refused = false;
    try {
      state.frame({bootstrap::FrameType::kTable, table}, kMs);
    } catch (const Error&) {
      refused = true;
    }
    expect(refused, "the table is refused");
  }
}

ddp_case(rank_0_is_named_when_its_connection_closes) {
  bootstrap::ClientState state = running();
  state.closed(2 * kMs);
  const auto actions = state.take();
  expect_equal(count(actions, bootstrap::ClientAction::Kind::kFailed), size_t{1}, "failed");
  expect_contains(actions.back().error->text(), "rank 0 (host h");
  expect_contains(actions.back().error->text(), "is gone");
  state.closed(3 * kMs);
  expect(state.take().empty(), "only the first cause counts");
}

ddp_case(rank_0_is_named_when_it_is_silent) {
  bootstrap::ClientState state = running();
  for (int64_t ms = 0; ms <= 1'000; ms += 100) {
    state.tick(kMs + ms * kMs, {});
    expect_equal(count(state.take(), bootstrap::ClientAction::Kind::kFailed), size_t{0}, "not yet");
  }
  state.tick(kMs + 1'100 * kMs, {});
  const auto actions = state.take();
  expect_equal(count(actions, bootstrap::ClientAction::Kind::kFailed), size_t{1}, "failed");
  expect_contains(actions.back().error->text(), "rank 0 (host h, pid 0) was silent for more than 1 s");
}

ddp_case(who_stood_still_itself_does_not_blame_rank_0) {
  bootstrap::ClientState state = running();
  state.tick(2 * kMs, {});
  state.tick(60'000 * kMs, {});
  expect_equal(count(state.take(), bootstrap::ClientAction::Kind::kFailed), size_t{0}, "not yet");
  state.frame({bootstrap::FrameType::kFailed, bootstrap::messages::write(Error(DDP_ERROR_PEER_FAILED, "rank 1 was silent"))},
              60'001 * kMs);
  const auto actions = state.take();
  expect_equal(actions.front().error->text(), std::string("rank 1 was silent"), "what rank 0 said meanwhile");
}

// A process that got no core for a while, again and again: none of these gaps is as long as half the limit.
ddp_case(who_was_starved_itself_does_not_count_that_time) {
  bootstrap::ClientState state = running();
  int64_t at = 2 * kMs;
  for (int turn = 0; turn < 6; ++turn) state.tick(at += 450 * kMs, {});
  expect_equal(count(state.take(), bootstrap::ClientAction::Kind::kFailed), size_t{0}, "2.7 s, of which it saw 0.8");
  for (int turn = 0; turn < 4; ++turn) state.tick(at += 100 * kMs, {});
  expect_equal(count(state.take(), bootstrap::ClientAction::Kind::kFailed), size_t{1}, "then it is silence");
}

ddp_case(who_stood_still_gives_rank_0_one_full_period) {
  bootstrap::ClientState state = running();
  int64_t at = 2 * kMs;
  for (int turn = 0; turn < 9; ++turn) state.tick(at += 100 * kMs, {});
  state.tick(at += 60'000 * kMs, {});
  for (int turn = 0; turn < 10; ++turn) state.tick(at += 100 * kMs, {});
  expect_equal(count(state.take(), bootstrap::ClientAction::Kind::kFailed), size_t{0}, "one full period");
  state.tick(at += 100 * kMs, {});
  expect_equal(count(state.take(), bootstrap::ClientAction::Kind::kFailed), size_t{1}, "and no more");
}

ddp_case(frames_without_a_place_are_refused) {
  for (const bootstrap::FrameType type :
       {bootstrap::FrameType::kBanner, bootstrap::FrameType::kHello, bootstrap::FrameType::kWelcome,
        bootstrap::FrameType::kJoin, bootstrap::FrameType::kTable, bootstrap::FrameType::kGather,
        bootstrap::FrameType::kAbort, bootstrap::FrameType::kBye}) {
    bootstrap::ClientState state = running();
    expect_error(DDP_ERROR_IO, [&] { state.frame({type, ""}, kMs); });
    state.broke("nonsense", kMs);
    const auto actions = state.take();
    expect_contains(actions.back().error->text(), "broke the control protocol: nonsense");
  }
}

ddp_case(nothing_follows_a_goodbye) {
  bootstrap::ClientState state = running();
  state.leave({});
  auto actions = state.take();
  expect(actions.size() == 2 && actions[0].type == bootstrap::FrameType::kBye &&
             actions[1].kind == bootstrap::ClientAction::Kind::kFinish,
         "goodbye");
  state.leave({});
  state.abort(Error(DDP_ERROR_ABORTED, "late"));
  state.tick(5'000 * kMs, {1, 1});
  state.closed(5'000 * kMs);
  expect(state.take().empty(), "nothing");
}
