// SPDX-License-Identifier: Apache-2.0
// The sum over ranks is formed in the tree, wherever it is formed: numbers of ranks that are no powers of two, threads as
// ranks, every dtype, operation and kind of memory, with weights, ranks that do not count, and two bytes on the wire. The
// oracle is plain recursion (support/sum_oracle.hpp).

#include "conformance/weight_world.hpp"
#include "conformance/wire_world.hpp"
#include "support/check.hpp"

constexpr int kTreeSizes[] = {3, 5, 7, 9, 12, 17, 24};

/// By the naive loop, from all ranks' inputs.
Bytes naive_result(const std::vector<Bytes>& inputs, ddp_dtype dtype, ddp_reduce op, int64_t count) {
  std::vector<const void*> in;
  for (const Bytes& input : inputs) in.push_back(input.data());
  Bytes out(inputs[0].size());
  naive_reduce({dtype, op, static_cast<int32_t>(inputs.size())}, in, out.data(), count);
  return out;
}

/// One all-reduce or reduce-scatter of all ranks.
struct Sum {
  ddp_dtype dtype;
  ddp_reduce op;
  int64_t part;  // elements a rank gets of a reduce-scatter
  std::vector<Bytes> inputs;
  Bytes wanted;
};

void check_sum(group::Group& group, int rank, const Sum& sum) {
  const int64_t count = sum.part * group.size();
  const std::string what = std::to_string(count) + " " + dtype_name(sum.dtype) + ", op " + std::to_string(sum.op) +
                           ", size " + std::to_string(group.size());
  const Bytes& input = sum.inputs[static_cast<size_t>(rank)];
  Bytes mine = input, part(input.size() / static_cast<size_t>(group.size()));
  group.all_reduce(flat_tensor(mine.data(), sum.dtype, count), sum.op);
  expect(mine == sum.wanted, what + ": private");
  mine = input;
  group.reduce_scatter(flat_tensor(mine.data(), sum.dtype, count), flat_tensor(part.data(), sum.dtype, sum.part), sum.op);
  expect(std::equal(part.begin(), part.end(), sum.wanted.begin() + static_cast<std::ptrdiff_t>(part.size()) * rank),
         what + ": scattered");
  auto* const shared = static_cast<std::byte*>(group.memory().alloc(static_cast<int64_t>(input.size())));
  std::copy(input.begin(), input.end(), shared);
  group.all_reduce(flat_tensor(shared, sum.dtype, count), sum.op);
  expect(std::equal(sum.wanted.begin(), sum.wanted.end(), shared), what + ": in reach");
  group.barrier();
  group.memory().free(shared);
}

ddp_case(collectives_add_in_the_tree) {
  for (const int size : kTreeSizes) {
    std::vector<Sum> sums;
    for (const ddp_dtype dtype : kAllDtypes)
      for (const ddp_reduce op : kAllOps) {
        const int64_t part = (op == DDP_AVERAGE ? 9'000 : 100) / size;  // not inside one announcement, and inside
        sums.push_back({dtype, op, part, random_inputs(size, dtype, part * size, static_cast<uint64_t>(size)), {}});
        sums.back().wanted = naive_result(sums.back().inputs, dtype, op, part * size);
      }
    run_groups(size, [&](group::Group& group, int rank) {
      for (const Sum& sum : sums) check_sum(group, rank, sum);
    });
  }
}

/// Whole numbers, fractions, and ranks without weight at the front, at the back, and in between.
std::vector<double> tree_weights(int size, int pass) {
  std::vector<double> weights;
  for (int rank = 0; rank < size; ++rank) {
    if (pass == 0) weights.push_back(0.1 + 0.37 * rank);
    if (pass == 1) weights.push_back(rank % 3 == 1 ? 0 : rank + 1);
    if (pass == 2) weights.push_back(rank < (size + 1) / 2 ? 0 : 1);
    if (pass == 3) weights.push_back(rank < size - 2 ? 1.5 : 0);
    if (pass == 4) weights.push_back(rank == size / 2 || rank == 0 || rank == size - 1 ? 1 : 0);
  }
  return weights;
}

ddp_case(passes_add_in_the_tree_and_who_does_not_count_moves_nobody) {
  constexpr int kPasses = 5;
  for (const int size : kTreeSizes) {
    std::vector<Means> means, by_world;
    for (int pass = 0; pass < kPasses; ++pass) {
      const std::vector<double> weights = tree_weights(size, pass);
      means.push_back(means_of(weights, sum_of(weights), pass));
      std::vector<double> counting;
      for (const double weight : weights) counting.push_back(weight > 0 ? 1 : 0);
      by_world.push_back(means_of(counting, size, pass));
    }
    run_groups(size, [&](group::Group& group, int rank) {
      for (const Memory memory : {Memory::kOwned, Memory::kPrivate}) {
        PassWorld weighted(group, memory, weighted_options());
        PassWorld plain(group, memory);
        for (int pass = 0; pass < kPasses; ++pass) {
          const std::vector<double> weights = tree_weights(size, pass);
          const std::string what = "size " + std::to_string(size) + ", memory " + std::to_string(static_cast<int>(memory)) +
                                   ", pass " + std::to_string(pass);
          const bool checks = rank == pass % size || rank == size - 1;  // the others have the same bits
          set_weight(*weighted.model, weights[static_cast<size_t>(rank)]);
          run_pass(weighted, rank, pass);
          if (checks) expect_means(weighted, means[static_cast<size_t>(pass)], what);
          expect(report_of(*weighted.model).weight == sum_of(weights), what + ": the sum of the weights");
          if (memory != Memory::kPrivate) continue;
          if (weights[static_cast<size_t>(rank)] == 0) {
            skip_backward(*plain.model);
          } else {
            run_pass(plain, rank, pass);
          }
          if (checks) expect_means(plain, by_world[static_cast<size_t>(pass)], what + ", who has no weight skips");
        }
        weighted.model->replicas().check();
      }
      group.barrier();
    });
  }
}

ddp_ranks_case(run_groups, two_bytes_on_the_wire_are_added_in_the_tree, 3, 5, 7, 9, 12, 17, 24) {
  int pass = 0;
  for (const WirePlace place : {WirePlace::kOwned, WirePlace::kPrivate}) {
    const ddp_dtype wire = (group.size() + pass) % 2 == 0 ? DDP_F16 : DDP_BF16;
    const WireWorld world(group, place, parts::Hook::sent_as(wire), wire_options());
    world.run(rank, pass);
    if (rank == group.size() - 1 - pass) expect_wire_results(world, group.size(), pass, wire, DDP_AVERAGE);
    ++pass;
    group.barrier();
  }
}
