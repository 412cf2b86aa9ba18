// SPDX-License-Identifier: Apache-2.0
// Sums of each channel against loops in long double, for shapes on both sides of every limit; and the gradient against
// differences.
#include "extra/batch_norm/moments.hpp"

#include "extra/batch_norm/batch_norm.hpp"
#include "support/batch_norm_oracle.hpp"
#include "support/check.hpp"
#include "support/group_world.hpp"

using namespace ddp::batch_norm;

ddp_case(moments_equal_those_of_plain_loops) {
  for (const Shape shape : {Shape{1, 1, 1}, Shape{5, 3, 1}, Shape{4000, 2, 1}, Shape{40, 1500, 1}, Shape{9, 7, 31},
                            Shape{9, 7, 32}, Shape{2, 3, 1023}, Shape{2, 3, 1025}, Shape{3, 1, 5000}, Shape{300, 5, 17}})
    for (const double offset : {0.0, 1e6}) {
      const Batch batch = make_batch(1, shape.rows, shape.channels, shape.inner, offset);
      const Moments got = measure(DDP_F64, batch.x.data(), shape);
      std::vector<long double> mean(static_cast<size_t>(shape.channels)), m2 = mean;
      const std::vector<Batch> all{batch};
      BatchNormOracle::each(all, [&](size_t c, double x, double) { mean[c] += static_cast<long double>(x); });
      for (long double& m : mean) m /= static_cast<long double>(shape.per_channel());
      BatchNormOracle::each(all, [&](size_t c, double x, double) {
        m2[c] += (static_cast<long double>(x) - mean[c]) * (static_cast<long double>(x) - mean[c]);
      });
      for (size_t c = 0; c < mean.size(); ++c) {
        expect(std::abs(got.mean[c] - static_cast<double>(mean[c])) <= 1e-14 * (std::abs(got.mean[c]) + 1), "mean");
        // Far from zero a mean carries its own last digits, and joining multiplies them with differences of about 1.
        const double level = 1e-14 * offset * static_cast<double>(shape.channels);
        const double limit = static_cast<double>(m2[c]) * 1e-12 + level * static_cast<double>(shape.per_channel());
        expect(std::abs(got.m2[c] - static_cast<double>(m2[c])) <= limit, "m2 within " + std::to_string(limit));
      }
      expect(got.count == static_cast<double>(shape.per_channel()), "count");
    }
}

ddp_case(joining_parts_equals_the_whole) {
  const Batch batch = make_batch(3, 90, 4, 1, 1e3);
  const Moments whole = measure(DDP_F64, batch.x.data(), {90, 4, 1});
  Moments joined(4);
  for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 1}, {1, 60}, {61, 0}, {61, 29}}) {
    const Moments part = measure(DDP_F64, batch.x.data() + first * 4, {rows, 4, 1});
    join(joined, part.count, part.mean.data(), part.m2.data());
  }
  expect(joined.count == 90, "count");
  for (size_t c = 0; c < 4; ++c)
    expect(std::abs(joined.mean[c] - whole.mean[c]) < 1e-12 && std::abs(joined.m2[c] / whole.m2[c] - 1) < 1e-12, "joined");
}

/// The sum of dy * y as a function of x, by forward alone.
double loss(group::Group& group, Batch batch, size_t at, double step) {
  batch.x[at] += step;
  std::vector<double> y(batch.x.size());
  Tensor x;
  x.dtype = DDP_F64, x.ndim = 3, x.count = static_cast<int64_t>(y.size());
  x.shape[0] = batch.rows, x.shape[1] = batch.channels, x.shape[2] = batch.inner;
  Tensor out = x;
  x.data = reinterpret_cast<std::byte*>(batch.x.data());
  out.data = reinterpret_cast<std::byte*>(y.data());
  ddp_batch_norm_options options{.epsilon = 1e-2, .training = 1};
  (void)forward(group, options, {x, {}, {}, {}, {}, out, {}, {}});
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += batch.dy[i] * y[i];
  return sum;
}

ddp_ranks_case(run_groups, the_gradient_is_the_slope_of_forward, 1) {
  Batch batch = make_batch(5, 3, 2, 4, 0.5);
  std::vector<double> y(batch.x.size()), dx(batch.x.size()), mean(2), invstd(2);
  const auto shaped = [&](std::vector<double>& data) {
    Tensor tensor = flat_tensor(data.data(), DDP_F64, static_cast<int64_t>(data.size()));
    tensor.ndim = 3;
    tensor.shape[0] = 3, tensor.shape[1] = 2, tensor.shape[2] = 4;
    return tensor;
  };
  ddp_batch_norm_options options{.epsilon = 1e-2, .training = 1};
  const Tensor means = flat_tensor(mean.data(), DDP_F64, 2), invstds = flat_tensor(invstd.data(), DDP_F64, 2);
  const int64_t count = forward(group, options, {shaped(batch.x), {}, {}, {}, {}, shaped(y), means, invstds});
  backward(group, options, {shaped(batch.dy), shaped(batch.x), {}, means, invstds, count, shaped(dx), {}, {}});
  for (size_t i = 0; i < dx.size(); ++i) {
    const double slope = (loss(group, batch, i, 1e-5) - loss(group, batch, i, -1e-5)) / 2e-5;
    expect(std::abs(slope - dx[i]) < 1e-7, "slope " + std::to_string(slope) + ", dx " + std::to_string(dx[i]));
  }
}
