// SPDX-License-Identifier: Apache-2.0
// Buckets that the program gives: the bits of the library's own plan in every way of making a step, on every transport;
// where the gradients are; a bucket of more gradients than are announced at once.
#include "support/check.hpp"
#include "support/training.hpp"

constexpr int kSteps = 3;

std::string train(group::Group& group, Rule rule, const Ways& ways) {
  Training world(group, rule, ways);
  for (int step = 0; step < kSteps; ++step) {
    world.pass(group.rank(), step, step == 1 ? std::set<int32_t>{4} : std::set<int32_t>{});
    world.optimizer->step();
  }
  std::string all = world.bytes();
  expect_same_everywhere(group, all, "the model");
  return all;
}

ddp_ranks_case_on(kThreePaths, run_on, every_way_gives_the_bits_of_the_librarys_plan, 1, 2, 3) {
  for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
    Ways plain;
    plain.dtype = dtype;
    plain.master_weights = dtype == DDP_BF16;
    const std::string wanted = train(group, Rule::kAdamW, plain);
    for (int way = 0; way < 16; ++way) {
      Ways given = plain;
      given.buckets = {6, 0, 2, -1, 1, 7, 5, -1, 4, 3};
      given.shard = (way & 1) != 0;
      given.in_backward = (way & 2) != 0;
      given.owned_grads = (way & 4) != 0;
      given.own_values = (way & 8) != 0;
      expect(train(group, Rule::kAdamW, given) == wanted, "way " + std::to_string(way));
    }
  }
}

void expect_packed(const Parameters& table, const std::vector<int32_t>& bucket) {
  const auto address = [&](int32_t index) { return reinterpret_cast<uintptr_t>(table.parameter(index).grad.data); };
  uintptr_t end = address(bucket.front());
  expect(end % 4096 == 0, "a bucket begins at a page");
  for (const int32_t index : bucket) {
    expect(address(index) == end, "no gap before parameter " + std::to_string(index));
    end += static_cast<uintptr_t>(table.parameter(index).grad.bytes());
  }
}

ddp_ranks_case_on(kThreePaths, run_on, gradients_of_a_bucket_follow_each_other, 2) {
  Ways ways;
  ways.buckets = {6, 0, 2, -1, 1, 7, 5, 4, 3};
  Training world(group, Rule::kSgd, ways);
  expect_packed(world.model->table(), {6, 0, 2});
  expect_packed(world.model->table(), {1, 7, 5, 4, 3});
  world.pass(rank, 0);
}

/// More than kMostPieces.
ddp_ranks_case_on(kThreePaths, run_on, a_bucket_of_many_gradients, 2) {
  Ways plain, given;
  plain.shapes = given.shapes = std::vector<int64_t>(kMostPieces + 700, 3);
  std::vector<int32_t> all(plain.shapes.size());
  for (size_t p = 0; p < all.size(); ++p) all[p] = static_cast<int32_t>(all.size() - 1 - p);
  given.buckets = all;
  {
    Training world(group, Rule::kSgd, given);
    expect_packed(world.model->table(), all);
  }
  expect(train(group, Rule::kMomentum, given) == train(group, Rule::kMomentum, plain), "the bits");
}
