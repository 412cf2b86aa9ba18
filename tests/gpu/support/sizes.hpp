// SPDX-License-Identifier: Apache-2.0
// Parameters of models that benchmarks measure with: their element counts, in the order of forward.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::test::card {

/// GPT-2's 148 parameters, 124 million elements.
inline std::vector<int64_t> gpt2_counts() {
  const int64_t width = 768;
  std::vector<int64_t> counts = {50257 * width, 1024 * width};
  for (int layer = 0; layer < 12; ++layer)
    for (const int64_t count : {width, width, width * 3 * width, 3 * width, width * width, width, width, width,
                                width * 4 * width, 4 * width, 4 * width * width, width})
      counts.push_back(count);
  counts.insert(counts.end(), {width, width});
  return counts;
}

/// A network of 24 layers of 1024 x 1024 with biases: 25 million elements in 48 parameters.
inline std::vector<int64_t> mlp_counts() {
  std::vector<int64_t> counts;
  for (int layer = 0; layer < 24; ++layer) counts.insert(counts.end(), {1024 * 1024, 1024});
  return counts;
}

}  // namespace ddp::test::card
