// SPDX-License-Identifier: Apache-2.0
// Passes with weights, and their means by a naive loop.
#pragma once

#include "conformance/pass_world.hpp"
#include "model/uneven.hpp"

namespace ddp::test {

inline constexpr int kFewSizes[] = {1, 2, 3, 4};
inline constexpr Memory kMemories[] = {Memory::kOwned, Memory::kPrivate, Memory::kGroup, Memory::kMixed};

inline ddp_model_options weighted_options() {
  ddp_model_options options = model_options();
  options.divisor = DDP_DIVISOR_WEIGHTS;
  return options;
}

inline ddp_pass_report report_of(const model::Model& model) {
  ddp_pass_report report{};
  last_attendance(model, "ddp_model_get_pass_report").fill_report(report);
  return report;
}

inline void mark_all(model::Model& model) {
  for (int32_t p = model.table().parameter_count(); p-- > 0;) model.pass().mark_ready(p);
}

inline void run_pass(PassWorld& world, int rank, int pass) {
  world.model->begin_backward(DDP_PASS_REDUCE);
  for (const int32_t p : order_of(rank, pass)) {
    world.fill(rank, pass, static_cast<size_t>(p));
    world.model->pass().mark_ready(p);
  }
  world.model->end_backward();
}

/// The public rule for one element: in the tree, in F32, every product rounded, who does not count as -0.0, divided once.
/// And in F64, by the plain formula.
struct Expected {
  float exact = 0;
  double rough = 0;
};
inline Expected weighted_mean(const std::vector<double>& weights, double divisor, int pass, size_t parameter, int64_t i) {
  std::vector<float> products;
  double rough = 0;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    const float value = gradient(static_cast<int>(rank), pass, parameter, i);
    volatile const float product = value * static_cast<float>(weights[rank]);
    products.push_back(weights[rank] == 0 ? -0.0F : product);
    rough += static_cast<double>(value) * weights[rank];
  }
  return {oracle_sum(products) / static_cast<float>(divisor), rough / divisor};
}

/// Of all elements; formed once for many tests, because the naive loop is slow.
using Means = std::vector<std::vector<Expected>>;
inline Means means_of(const std::vector<double>& weights, double divisor, int pass) {
  Means means;
  for (size_t p = 0; p < kShapes.size(); ++p) {
    means.emplace_back();
    for (int64_t i = 0; i < kShapes[p]; ++i) means.back().push_back(weighted_mean(weights, divisor, pass, p, i));
  }
  return means;
}

inline void expect_means(PassWorld& world, const Means& means, const std::string& what) {
  for (size_t p = 0; p < kShapes.size(); ++p)
    for (size_t i = 0; i < means[p].size(); ++i) {
      const float got = world.grad(p)[i];
      const Expected& wanted = means[p][i];
      if (std::memcmp(&wanted.exact, &got, 4) == 0 && std::abs(static_cast<double>(got) - wanted.rough) < 1e-4) continue;
      throw std::runtime_error(what + ": parameter " + std::to_string(p) + " element " + std::to_string(i) + " is " +
                               std::to_string(got) + ", expected " + std::to_string(wanted.exact) + ", in F64 " +
                               std::to_string(wanted.rough));
    }
}

inline void expect_weighted(PassWorld& world, const std::vector<double>& weights, double divisor, int pass,
                            const std::string& what) {
  expect_means(world, means_of(weights, divisor, pass), what);
}

inline double sum_of(const std::vector<double>& weights) { return oracle_sum(weights); }

/// Sample counts, fractions, zeros, and all ones: by pass.
inline std::vector<double> weights_of(int size, int pass) {
  std::vector<double> weights;
  for (int rank = 0; rank < size; ++rank) {
    if (pass == 0) weights.push_back(rank + 1);
    if (pass == 1) weights.push_back(0.1 + 0.37 * rank);
    if (pass == 2) weights.push_back((rank + 1) % size == 0 ? 0 : 7);
    if (pass == 3) weights.push_back(rank == size / 2 ? 12 : 0);
    if (pass == 4) weights.push_back(1);
    if (pass == 5) weights.push_back(rank == 0 && size > 1 ? 0 : 1);
  }
  if (sum_of(weights) == 0) weights[0] = 1;
  return weights;
}

}  // namespace ddp::test
