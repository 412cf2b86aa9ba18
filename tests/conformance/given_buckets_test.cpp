// SPDX-License-Identifier: Apache-2.0
// Buckets that the program gives: the bits of the library's own plan in every way of making a step, on every transport;
// where the gradients are; a bucket of more gradients than are announced at once.
#include "conformance/step_bits.hpp"
#include "support/check.hpp"

BitRow given_row(const char* name, const std::vector<int>& sizes, const Change& change) {
  return {.name = name,
          .sizes = sizes,
          .change = change,
          .reference = [](Ways& ways) { ways.buckets.clear(); },
          .mask = kShard | kInBackward | kOwnedGrads | kOwnValues,
          .training = {.slow = -1, .unused = {4}}};
}
void give_buckets(Ways& ways) { ways.buckets = {6, 0, 2, -1, 1, 7, 5, -1, 4, 3}; }

/// More than kMostPieces, from the last gradient to the first.
void give_one_bucket(Ways& ways) {
  ways.shapes = std::vector<int64_t>(kMostPieces + 700, 3);
  ways.buckets.resize(ways.shapes.size());
  std::iota(ways.buckets.rbegin(), ways.buckets.rend(), 0);
}
BitRow row_of_many() {
  BitRow row = given_row("a bucket of many gradients", {2}, give_one_bucket);
  row.rules = {Rule::kMomentum};
  row.mask = 0;
  return row;
}

ddp_bit_rows(given_row("every way has the bits of the library's plan", {1, 2, 3}, give_buckets),
             given_row("16 bits do too", {1, 2, 3},
                       [](Ways& ways) { give_buckets(ways), ways.dtype = DDP_BF16, ways.master_weights = true; }),
             row_of_many());

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

ddp_ranks_case_on(kThreePaths, run_on, so_do_those_of_a_bucket_of_many, 2) {
  Ways ways;
  give_one_bucket(ways);
  expect_packed(Training(group, Rule::kSgd, ways).model->table(), ways.buckets);
}
