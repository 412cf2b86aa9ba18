// SPDX-License-Identifier: Apache-2.0
// Whose state all ranks get: every mixture of new, whole, torn and advanced replicas of three ranks against a search by
// hand.
#include "model/replica_source.hpp"

#include "support/check.hpp"

using namespace ddp::model;

using Sends = ReplicaSource::Sends;

ReplicaVersion version(bool is_new, bool is_whole, int64_t passes, int64_t steps, int32_t rank) {
  ReplicaVersion made;
  made.is_new = is_new;
  made.is_whole = is_whole;
  made.final_passes = passes;
  made.steps = steps;
  made.hash = is_new ? 0 : static_cast<uint64_t>(passes * 10 + steps + 1);
  made.rank = is_new ? -1 : rank;
  made.size = is_new ? 0 : 3;
  return made;
}

/// One of 9 versions of a rank: new, or whole or torn at one of four ages.
ReplicaVersion numbered(int number, int32_t rank) {
  if (number == 8) return version(true, true, 0, 0, rank);
  return version(false, number % 2 == 0, 4 + number / 4, 4 + number / 2 % 2, rank);
}

void expect_rules(const std::vector<ReplicaVersion>& ranks) {
  const ReplicaSource found = find_source(ranks);
  bool all_new = true, all_same = true;
  for (const ReplicaVersion& each : ranks) all_new = all_new && each.is_new;
  expect_equal(found.is_recovery, !all_new, "is it a recovery?");
  if (all_new) return expect(found.sends == Sends::kValues && found.rank == 0, "rank 0's values");
  int32_t oldest = -1;
  for (int32_t rank = 0; rank < 3; ++rank) {
    const ReplicaVersion& each = ranks[static_cast<size_t>(rank)];
    if (each.is_new || !each.is_whole) continue;
    if (oldest < 0 || each.final_passes * 100 + each.steps <
                          ranks[static_cast<size_t>(oldest)].final_passes * 100 + ranks[static_cast<size_t>(oldest)].steps)
      oldest = rank;
  }
  if (oldest < 0) return expect(found.sends == Sends::kNoneIsWhole, "nobody is whole");
  expect_equal(found.rank, oldest, "the one that is behind");
  for (const ReplicaVersion& each : ranks)
    all_same = all_same && !each.is_new && each.is_whole && each.hash == ranks.front().hash;
  expect(found.sends == (all_same ? Sends::kNothing : Sends::kValuesAndStates), "what is sent");
  expect_equal(found.same_ranks, all_same, "the ranks are those of before");
}

/// A rank that has made the step of one optimizer and not of another one cannot repeat the step.
ddp_case(a_rank_between_two_steps_is_not_the_source_if_another_one_has_made_both) {
  std::vector<ReplicaVersion> ranks{version(false, true, 5, 9, 0), version(false, true, 5, 10, 1),
                                    version(false, true, 5, 10, 2)};
  expect_equal(find_source(ranks).rank, 0, "the one that is behind");
  ranks[0].is_between = true;
  expect_equal(find_source(ranks).rank, 1, "the first that has made both");
  expect(find_source(ranks).sends == Sends::kValuesAndStates, "what is sent");
  ranks[1].is_whole = false;
  expect_equal(find_source(ranks).rank, 2, "and is whole");
  ranks[2].final_passes = 6;
  expect_equal(find_source(ranks).rank, 0, "no other rank is in that step");
  ranks[2] = version(false, true, 5, 8, 2);
  expect_equal(find_source(ranks).rank, 2, "a rank that has made none of the two");
  ranks[0].rank = 77;
  const ReplicaVersion read = read_version(write_version(ranks[0]));
  expect(read.is_between && read.rank == 77 && read.steps == 9, "a version is read as it was written");
}

ddp_case(who_holds_the_same_is_alike) {
  const ReplicaVersion one = version(false, true, 4, 4, 0);
  ReplicaVersion other = version(false, true, 4, 4, 1);
  expect(are_alike(one, other), "the same on another rank");
  other.rest = 1;
  expect(!are_alike(one, other), "other buffers");
  expect(!are_alike(one, version(false, false, 4, 4, 1)), "one is torn");
  expect(!are_alike(one, version(false, true, 4, 5, 1)), "one is a step ahead");
  expect(!are_alike(version(true, true, 0, 0, 0), version(true, true, 0, 0, 1)), "who is new holds nothing");
}

ddp_case(every_mixture_has_the_right_source) {
  for (int mixture = 0; mixture < 9 * 9 * 9; ++mixture)
    expect_rules({numbered(mixture % 9, 0), numbered(mixture / 9 % 9, 1), numbered(mixture / 81, 2)});
}

ddp_case(a_load_before_commit_sends_the_state_too) {
  std::vector<ReplicaVersion> ranks(2, version(true, true, 0, 0, 0));
  ranks[1].loaded = true;
  expect(find_source(ranks).sends == Sends::kValuesAndStates && find_source(ranks).rank == 0, "rank 0's state");
}

ddp_case(other_ranks_or_bits_are_not_the_same) {
  std::vector<ReplicaVersion> ranks{version(false, true, 4, 4, 0), version(false, true, 4, 4, 1)};
  expect(!find_source(ranks).same_ranks, "one of three is gone");
  ranks[1].hash ^= 1;
  expect(find_source(ranks).sends == Sends::kValuesAndStates, "other bits at one age");
  ranks[1].hash ^= 1;
  for (ReplicaVersion& each : ranks) each.size = 2;
  expect(find_source(ranks).sends == Sends::kNothing && find_source(ranks).same_ranks, "all are there, with the same");
  ranks[1].rest ^= 1;
  expect(find_source(ranks).sends == Sends::kValuesAndStates && find_source(ranks).same_ranks,
         "other buffers are sent, and parts of a state still fit the parameters");
}

ddp_case(a_version_survives_its_way) {
  ReplicaVersion sent = version(false, false, 7, 5, 2);
  sent.loaded = true;
  sent.rest = 12;
  const ReplicaVersion got = read_version(write_version(sent));
  expect(!got.is_new && got.loaded && !got.is_whole && got.final_passes == 7 && got.steps == 5 && got.hash == sent.hash &&
             got.rest == 12 && got.rank == 2 && got.size == 3,
         "all fields");
}
