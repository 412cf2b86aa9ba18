// SPDX-License-Identifier: Apache-2.0
// Values that libddp keeps (own_values): what was lent is used no more after commit, and every way of making a step,
// saving and averaging gives the bits of values that stay where they are. Passes that fail are in fused_test.cpp.
#include "checkpoint/state.hpp"
#include "optim/ema.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

constexpr int kSteps = 4;
const std::vector<int64_t> kShapes = {900, 64, 5000, 0, 70'001, 7, 33'000, 1024};

Ways ways_with(bool own) {
  Ways ways;
  ways.shapes = kShapes;
  ways.own_values = own;
  return ways;
}

std::string train(group::Group& group, Rule rule, const Ways& ways) {
  Training world(group, rule, ways);
  optim::Ema average(world.model, {0.75});
  for (int step = 0; step < kSteps; ++step) {
    world.pass(group.rank(), step, step == 2 ? std::set<int32_t>{4} : std::set<int32_t>{});
    world.optimizer->step();
    average.update();
  }
  std::string all = world.bytes();
  average.swap(0);
  all += world.bytes();
  average.swap(0);
  expect_same_everywhere(group, all, "the model");
  return all;
}

ddp_ranks_case_on(kThreePaths, run_on, every_way_gives_the_same_bits, 1, 2, 3) {
  for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
    Ways plain = ways_with(false);
    plain.dtype = dtype;
    plain.master_weights = dtype == DDP_BF16;
    const std::string wanted = train(group, Rule::kAdamW, plain);
    for (int way = 0; way < 8; ++way) {
      Ways own = plain;
      own.own_values = true;
      own.shard = (way & 1) != 0;
      own.in_backward = (way & 2) != 0;
      own.owned_grads = (way & 4) != 0;
      expect(train(group, Rule::kAdamW, own) == wanted, "way " + std::to_string(way));
    }
  }
}

/// Rank 0's values as they were lent are what all ranks begin with.
ddp_ranks_case_on(kThreePaths, run_on, commit_copies_what_was_lent, 2) {
  Training world(group, Rule::kSgd, ways_with(true));
  for (size_t p = 0; p < kShapes.size(); ++p)
    for (int64_t i = 0; i < kShapes[p]; ++i) {
      float found = 0;
      std::memcpy(&found, world.values[p] + 4 * i, 4);
      expect(found == static_cast<float>(std::sin(static_cast<double>(i) + static_cast<double>(p))), "a value");
    }
  expect(rank < 2, "a rank");
}

ddp_case_on(kThreePaths, checkpoints_are_the_same_file) {
  const Folder folder;
  run_on(path, 2, [&](group::Group& group, int rank) {
    std::string files[2];
    for (const bool own : {false, true}) {
      Training world(group, Rule::kAdamW, ways_with(own));
      world.train(rank, 0);
      const std::string file = folder.path() + "/" + std::to_string(own);
      checkpoint::save_file("save", {*world.model, world.optimizer.get()}, {1, 3}, file, std::nullopt);
      files[own ? 1 : 0] = read_file(file);
      Training again(group, Rule::kAdamW, ways_with(own));
      (void)checkpoint::load_file("load", {*again.model, again.optimizer.get()}, file, std::nullopt);
      expect(again.bytes() == world.bytes(), "what was saved was loaded");
    }
    expect(!files[0].empty() && files[0] == files[1], "the same file");
  });
}
