// SPDX-License-Identifier: Apache-2.0
// A model for local SGD. The oracle trains all ranks one after the other in a naive loop.
#pragma once

#include "conformance/wire_world.hpp"
#include "model/average.hpp"
#include "model/replicas.hpp"

namespace ddp::test {

inline const std::vector<int64_t> kLocalShapes = {3, 20'000, 1, 512, 7};
inline constexpr float kLocalRate = 0.125F;

inline float local_gradient(int rank, int step, size_t parameter, int64_t i, float value) {
  return value * 0.25F +
         static_cast<float>((rank * 31 + step * 7 + static_cast<int>(parameter) + static_cast<int>(i)) % 13) - 6.0F;
}

/// All ranks' parameters after `steps` steps, averaged after every `period` of them.
inline std::vector<std::vector<std::vector<float>>> train_naively(int size, int steps, int period) {
  std::vector<std::vector<std::vector<float>>> ranks(static_cast<size_t>(size));
  for (auto& parameters : ranks)
    for (const int64_t count : kLocalShapes) parameters.emplace_back(static_cast<size_t>(count), 1.0F);
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < size; ++rank)
      for (size_t p = 0; p < kLocalShapes.size(); ++p)
        for (int64_t i = 0; i < kLocalShapes[p]; ++i) {
          float& value = ranks[static_cast<size_t>(rank)][p][static_cast<size_t>(i)];
          value = value - kLocalRate * local_gradient(rank, step, p, i, value);
        }
    if ((step + 1) % period != 0) continue;
    for (size_t p = 0; p < kLocalShapes.size(); ++p)
      for (size_t i = 0; i < static_cast<size_t>(kLocalShapes[p]); ++i) {
        std::vector<float> of_ranks;
        for (const auto& parameters : ranks) of_ranks.push_back(parameters[p][i]);
        const float sum = oracle_sum(of_ranks);
        for (auto& parameters : ranks) parameters[p][i] = sum / static_cast<float>(size);
      }
  }
  return ranks;
}

}  // namespace ddp::test
