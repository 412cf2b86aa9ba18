// SPDX-License-Identifier: Apache-2.0
// Values that libddp keeps (own_values): what was lent is used no more after commit, and every way of making a step,
// saving and averaging gives the bits of values that stay where they are. Passes that fail are in fused_test.cpp.
#include "conformance/step_bits.hpp"
#include "support/check.hpp"

const std::vector<int64_t> kOwnShapes = {900, 64, 5000, 0, 70'001, 7, 33'000, 1024};

Ways ways_with(bool own) {
  Ways ways;
  ways.shapes = kOwnShapes;
  ways.own_values = own;
  return ways;
}

BitRow own_row(const char* name, const Change& change) {
  return {.name = name,
          .sizes = {1, 2, 3},
          .change = [change](Ways& ways) { ways = ways_with(true), change(ways); },
          .reference = [](Ways& ways) { ways.own_values = false; },
          .mask = kShard | kInBackward | kOwnedGrads,
          .training = {.slow = -1, .unused = {4}, .has_average = true}};
}

ddp_bit_rows(own_row("every way has the same bits", [](Ways&) {}),
             own_row("16 bits do too", [](Ways& ways) { ways.dtype = DDP_BF16, ways.master_weights = true; }));

/// Rank 0's values as they were lent are what all ranks begin with.
ddp_ranks_case_on(kThreePaths, run_on, commit_copies_what_was_lent, 2) {
  Training world(group, Rule::kSgd, ways_with(true));
  for (size_t p = 0; p < kOwnShapes.size(); ++p)
    for (int64_t i = 0; i < kOwnShapes[p]; ++i) {
      float found = 0;
      std::memcpy(&found, world.values[p] + 4 * i, 4);
      expect(found == static_cast<float>(std::sin(static_cast<double>(i) + static_cast<double>(p))), "a value");
    }
  expect(rank < 2, "a rank");
}

ddp_case_on(kThreePaths, checkpoints_are_the_same_file) {
  expect_one_file(path, {{2, ways_with(false)}, {2, ways_with(true)}}, {{2, ways_with(false)}, {2, ways_with(true)}});
}
