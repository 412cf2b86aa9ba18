// SPDX-License-Identifier: Apache-2.0
// Batch normalisation as its formulas say it, in loops over the joined batch of all ranks, in F64; and reproducible batches
// for it.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ddp/batch_norm.h"

namespace ddp::test {

inline constexpr int64_t kRows[] = {3, 0, 1, 5};  // of each rank

inline ddp_batch_norm_options norm_options() { return {.epsilon = 1e-3, .momentum = 0.3, .training = 1}; }

/// [rows, channels, inner], one after the other.
struct Batch {
  int64_t rows, channels, inner;
  std::vector<double> x, dy;
};

/// A rank's batch; channel c has its mean near `offset` * c, the values differ by about 1.
inline Batch make_batch(int rank, int64_t rows, int64_t channels, int64_t inner, double offset) {
  Batch batch{rows, channels, inner, {}, {}};
  std::mt19937_64 random(static_cast<uint64_t>(rank * 7919 + 13));
  const auto draw = [&] { return static_cast<double>(random() >> 11) / 9007199254740992.0 * 4 - 2; };
  for (int64_t i = 0; i < rows * channels * inner; ++i) {
    batch.x.push_back(draw() + offset * static_cast<double>(i / inner % channels));
    batch.dy.push_back(draw());
  }
  return batch;
}

struct BatchNormOracle {
  int64_t count = 0;
  std::vector<double> mean, var, invstd, sum_dy, sum_dy_xhat;

  BatchNormOracle(const std::vector<Batch>& batches, double epsilon) {
    const auto channels = static_cast<size_t>(batches[0].channels);
    mean.resize(channels);
    var = invstd = sum_dy = sum_dy_xhat = mean;
    for (const Batch& batch : batches) count += batch.rows * batch.inner;
    each(batches, [&](size_t c, double x, double) { mean[c] += x; });
    for (double& m : mean) m /= static_cast<double>(count);
    each(batches, [&](size_t c, double x, double) { var[c] += (x - mean[c]) * (x - mean[c]); });
    for (size_t c = 0; c < channels; ++c) invstd[c] = 1 / std::sqrt((var[c] /= static_cast<double>(count)) + epsilon);
    each(batches, [&](size_t c, double x, double dy) {
      sum_dy[c] += dy;
      sum_dy_xhat[c] += dy * (x - mean[c]) * invstd[c];
    });
  }
  double unbiased_var(size_t c) const { return var[c] * static_cast<double>(count) / static_cast<double>(count - 1); }
  double xhat(size_t c, double x) const { return (x - mean[c]) * invstd[c]; }
  double dx(size_t c, double x, double dy, double weight) const {
    const auto n = static_cast<double>(count);
    return weight * invstd[c] * (dy - sum_dy[c] / n - xhat(c, x) * sum_dy_xhat[c] / n);
  }

  template <class Visit>
  static void each(const std::vector<Batch>& batches, Visit visit) {
    for (const Batch& batch : batches)
      for (size_t i = 0; i < batch.x.size(); ++i)
        visit(i / static_cast<size_t>(batch.inner) % static_cast<size_t>(batch.channels), batch.x[i], batch.dy[i]);
  }
};

}  // namespace ddp::test
