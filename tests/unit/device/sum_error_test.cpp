// SPDX-License-Identifier: Apache-2.0
// The tree is no less exact than rank order: the RMS error of sums of equally distributed numbers, by the number of ranks.

#include "device/cpu/reduce.hpp"
#include "support/check.hpp"

constexpr int64_t kElements = 65'536;
constexpr int32_t kMostRanks = 64;

ddp_case(the_error_is_no_larger_than_in_rank_order) {
  std::mt19937_64 random(42);
  std::uniform_real_distribution<float> equally(-1.0F, 1.0F);
  std::vector<std::vector<float>> arrays;
  std::vector<const void*> in;
  std::vector<float> in_order(kElements), in_tree(kElements);
  std::vector<double> exact(kElements);
  for (int32_t ranks = 1; ranks <= kMostRanks; ++ranks) {
    arrays.emplace_back();
    for (int64_t i = 0; i < kElements; ++i) arrays.back().push_back(equally(random));
    in.clear();
    for (const auto& array : arrays) in.push_back(array.data());
    void* out = in_tree.data();
    cpu::reduce({DDP_F32, DDP_SUM, ranks}, in.data(), ranks, &out, 1, kElements);
    double of_order = 0, of_tree = 0;
    for (size_t i = 0; i < in_tree.size(); ++i) {
      volatile const float next = in_order[i] + arrays.back()[i];
      in_order[i] = next;
      exact[i] += static_cast<double>(arrays.back()[i]);
      of_order += std::pow(static_cast<double>(in_order[i]) - exact[i], 2);
      of_tree += std::pow(static_cast<double>(in_tree[i]) - exact[i], 2);
    }
    expect(of_tree <= of_order, std::to_string(ranks) + " ranks: the squared error is " +
                                    std::to_string(std::sqrt(of_tree / kElements)) + " in the tree and " +
                                    std::to_string(std::sqrt(of_order / kElements)) + " in rank order");
  }
}
