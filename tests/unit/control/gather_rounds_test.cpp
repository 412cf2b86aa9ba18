// SPDX-License-Identifier: Apache-2.0
// Rounds of gather(), against a list of what each rank brought; random orders of arrival.
#include "control/gather_rounds.hpp"

#include "support/check.hpp"

using ddp::bootstrap::GatherRounds;
using ddp::bootstrap::Member;

std::vector<Member> people(int32_t size) {
  std::vector<Member> members;
  for (int32_t rank = 0; rank < size; ++rank) members.push_back({rank, "host", "boot", 100 + rank, "127.0.0.1"});
  return members;
}

GatherRounds::Answer bring(GatherRounds& board, int32_t rank, const char* what, std::string blob) {
  return board.add(rank, what, std::move(blob), INT64_MAX, 0);
}

ddp_case(a_round_is_answered_when_the_last_rank_came) {
  const auto members = people(3);
  GatherRounds board(members);
  expect(bring(board, 2, "plan", "c").to.empty(), "no answer after one");
  expect(bring(board, 0, "plan", "a").to.empty(), "no answer after two");
  const auto answer = bring(board, 1, "plan", "b");
  expect(answer.to == std::vector<int32_t>({0, 1, 2}), "all get the answer");
  expect(answer.blobs == std::vector<std::string>({"a", "b", "c"}), "blobs in rank order");
  expect_equal(answer.sequence, uint64_t{1}, "round");
}

ddp_case(random_orders_give_every_round_in_rank_order) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const int32_t size = 1 + static_cast<int32_t>(random() % 7);
    const auto members = people(size);
    GatherRounds board(members);
    // A rank may only continue when its last round was answered, as in the real thing.
    std::vector<uint64_t> answered(static_cast<size_t>(size), 0);
    for (uint64_t step = 0; step < 20 * static_cast<uint64_t>(size); ++step) {
      std::vector<int32_t> free;
      for (int32_t rank = 0; rank < size; ++rank)
        if (board.next_sequence(rank) == answered[static_cast<size_t>(rank)] + 1) free.push_back(rank);
      const int32_t rank = free[random() % free.size()];
      const uint64_t round = board.next_sequence(rank);
      const auto answer = bring(board, rank, "x", std::to_string(round) + "/" + std::to_string(rank));
      for (const int32_t to : answer.to) answered[static_cast<size_t>(to)] = answer.sequence;
      for (size_t r = 0; r < answer.blobs.size(); ++r)
        expect_equal(answer.blobs[r], std::to_string(round) + "/" + std::to_string(r), "blob, seed " + std::to_string(seed));
    }
  }
}

ddp_case(different_names_fail_on_all_ranks_also_on_late_ones) {
  const auto members = people(3);
  GatherRounds board(members);
  expect(bring(board, 2, "sizes", "").to.empty(), "one rank waits");
  const auto first = bring(board, 1, "plan", "");
  expect(first.to == std::vector<int32_t>({1, 2}), "both that are here get the error");
  expect_equal(static_cast<int>(first.error->status()), static_cast<int>(DDP_ERROR_DIFFERENT_CALLS), "status");
  expect_contains(
      first.error->text(),
      "rank 1 (host host, pid 101) waits in \"plan\"; rank 2 (host host, pid 102) waits in \"sizes\"; every rank must");
  const auto late = bring(board, 0, "sizes", "");
  expect(late.to == std::vector<int32_t>({0}), "the late rank gets it when it comes");
  expect_equal(late.error->text(), first.error->text(), "the same text");
}

ddp_case(the_round_after_a_mismatch_works) {
  const auto members = people(2);
  GatherRounds board(members);
  static_cast<void>(bring(board, 0, "a", ""));
  static_cast<void>(bring(board, 1, "b", ""));
  static_cast<void>(bring(board, 0, "c", "0"));
  const auto answer = bring(board, 1, "c", "1");
  expect(!answer.error.has_value(), "no error");
  expect(answer.blobs == std::vector<std::string>({"0", "1"}), "blobs");
}

ddp_case(overdue_names_the_round_and_the_missing) {
  const auto members = people(3);
  GatherRounds board(members);
  static_cast<void>(board.add(1, "plan", "", 1'000, 5));
  expect(!board.overdue(999).has_value(), "not yet overdue");
  const auto late = board.overdue(1'000);
  expect(late.has_value(), "overdue at its deadline");
  expect_equal(late->call, std::string("\"plan\""), "name");
  expect_equal(late->limit_ms, int64_t{5}, "limit");
  expect(late->missing == std::vector<int32_t>({0, 2}), "missing");
}

ddp_case(the_shortest_limit_counts) {
  const auto members = people(3);
  GatherRounds board(members);
  static_cast<void>(board.add(0, "x", "", 9'000, 9));
  static_cast<void>(board.add(2, "x", "", 2'000, 2));
  expect_equal(board.overdue(2'000)->limit_ms, int64_t{2}, "limit");
}

ddp_case(a_failed_round_is_never_overdue) {
  const auto members = people(3);
  GatherRounds board(members);
  static_cast<void>(board.add(0, "x", "", 1'000, 1));
  static_cast<void>(board.add(1, "y", "", 1'000, 1));
  expect(!board.overdue(5'000).has_value(), "nobody waits in it");
}
