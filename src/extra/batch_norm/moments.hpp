// SPDX-License-Identifier: Apache-2.0
// Sums over the samples of each channel, for arrays [rows, channels, inner] of any floating dtype, in F64.
//
// Mean and sum of squared differences are taken chunk by chunk (two passes over a chunk that stays in cache) and joined
// pairwise, so that a mean far from zero costs no digits: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a
// pairwise algorithm for computing sample variances", 1979. The order depends on the shape alone.
// Promises: the same input gives the same bits everywhere; memory is read once from afar. Any thread.
// Tested by unit/extra/moments_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.hpp"

namespace ddp::batch_norm {

/// [rows, channels, inner]; one channel's values are `inner` neighbours in each row.
struct Shape {
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t inner = 0;
  [[nodiscard]] int64_t per_channel() const noexcept { return rows * inner; }
};

/// The first two dimensions of a tensor and the product of the others.
[[nodiscard]] Shape shape_of(const Tensor& tensor) noexcept;

/// Of one set of values in each channel.
struct Moments {
  explicit Moments(int64_t channels) : mean(static_cast<size_t>(channels)), m2(static_cast<size_t>(channels)) {}
  double count = 0;
  std::vector<double> mean;
  std::vector<double> m2;  // sum of (x - mean)^2
};

[[nodiscard]] Moments measure(ddp_dtype dtype, const void* data, const Shape& shape);

/// `more` describes further values: afterwards `moments` describes all of them.
void join(Moments& moments, double count, const double* mean, const double* m2) noexcept;

/// sums[c] += sum of dy, products[c] += sum of dy * (x - mean[c]).
void gradient_sums(ddp_dtype dtype, const void* dy, const void* x, const Shape& shape, const double* mean, double* sums,
                   double* products);

/// y = (x - mean[c]) * factor[c] + shift[c], rounded once.
void apply_forward(ddp_dtype dtype, const void* x, const Shape& shape, const double* mean, const double* factor,
                   const double* shift, void* y);

/// dx = dy * factor[c] - (x - mean[c]) * slope[c] - shift[c], rounded once.
void apply_backward(ddp_dtype dtype, const void* dy, const void* x, const Shape& shape, const double* mean,
                    const double* factor, const double* slope, const double* shift, void* dx);

}  // namespace ddp::batch_norm
