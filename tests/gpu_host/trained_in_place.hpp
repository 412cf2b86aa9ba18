// SPDX-License-Identifier: Apache-2.0
// A model of GPT-2's shapes, smaller by one factor, whose gradients and values libddp keeps on a GPU, with AdamW.
#pragma once

#include "support/training.hpp"

namespace ddp::test {

/// Of GPT-2's 148 parameters, in the order of its forward computation.
inline std::vector<int64_t> gpt2(int64_t smaller) {
  constexpr int64_t kWidth = 768;
  std::vector<int64_t> counts = {50257 * kWidth, 1024 * kWidth};
  for (int layer = 0; layer < 12; ++layer)
    for (const int64_t count : {kWidth, kWidth, 3 * kWidth * kWidth, 3 * kWidth, kWidth * kWidth, kWidth, kWidth, kWidth,
                                4 * kWidth * kWidth, 4 * kWidth, 4 * kWidth * kWidth, kWidth})
      counts.push_back(count);
  counts.push_back(kWidth);
  counts.push_back(kWidth);
  for (int64_t& count : counts) count /= smaller;
  return counts;
}

/// Buckets are as many as those of the whole model.
inline Ways kept_ways(const std::vector<int64_t>& counts, int64_t smaller) {
  Ways ways;
  ways.shapes = counts;
  ways.first_bucket_bytes = (1 << 20) / smaller;
  ways.bucket_bytes = (64 << 20) / smaller;
  ways.own_values = true;
  ways.unused = DDP_UNUSED_ERROR;
  return ways;
}

}  // namespace ddp::test
