// SPDX-License-Identifier: Apache-2.0
// Sums over a batch, by the kernels on the host: moments against sums in long double, the division of the work, and that
// bits do not change.
#include "modules/cuda/kernels/moments.hpp"

#include "device/cpu/arrays.hpp"
#include "extra/batch_norm/moments.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

struct Shape {
  int64_t rows, channels, inner;
};
/// Both ways of dividing, several blocks and one, parts that are not full.
constexpr Shape kShapes[] = {{1, 1, 1},    {2, 3, 1},    {7, 33, 1},  {300, 5, 1},  {700, 70, 1},  {5, 3, 31},  {40, 9, 7},
                             {130, 40, 3}, {1, 1, 32},   {3, 2, 49},  {4, 3, 255},  {4, 3, 256},   {2, 2, 257}, {2, 5, 3136},
                             {1, 1, 5000}, {9, 1, 4099}, {33, 4, 64}, {1, 2, 2048}, {2, 1, 12000}, {64, 2, 100}};

ddp_gpu_batch batch_of(const Shape& shape, ddp_dtype dtype) { return {shape.rows, shape.channels, shape.inner, dtype, 0}; }
int64_t values_of(const Shape& shape) { return shape.rows * shape.channels * shape.inner; }

/// Every shape with two dtypes, every dtype with shapes of both kinds.
template <class Body>
void each_case(Body body) {
  for (size_t k = 0; k < std::size(kShapes); ++k)
    for (const size_t more : {0U, 1U}) body(kShapes[k], kFloats[(k + more) % 4]);
}

/// Exactly as much scratch memory as is asked for.
std::vector<char> scratch_for(const ddp_gpu_batch& batch) {
  return std::vector<char>(static_cast<size_t>(cuda::bn_scratch_bytes(&batch)));
}

std::vector<double> in_double(const WildArray& array) {
  WildArray wide(DDP_F64, array.count());
  cpu::convert(array.dtype(), array.data(), DDP_F64, wide.data(), array.count());
  return {wide.as<double>(), wide.as<double>() + array.count()};
}

void near(double got, long double wanted, long double scale, const std::string& what) {
  const auto away = static_cast<double>(std::fabs(static_cast<long double>(got) - wanted));
  if (!(away <= static_cast<double>(scale) * 1e-14))
    throw std::runtime_error(what + " is " + std::to_string(got) + ", expected " +
                             std::to_string(static_cast<double>(wanted)));
}

ddp_case(moments_are_those_of_the_values) {
  each_case([](const Shape& shape, ddp_dtype dtype) {
    const ddp_gpu_batch batch = batch_of(shape, dtype);
    WildArray x(dtype, values_of(shape), 1);
    x.fill(static_cast<uint64_t>(values_of(shape)), false);
    const auto channels = static_cast<size_t>(shape.channels);
    std::vector<double> out(1 + 2 * channels, -1);
    auto scratch = scratch_for(batch);
    expect_equal(cuda::bn_moments(&batch, x.data(), out.data(), scratch.data(), nullptr), 0, "code");
    const auto values = in_double(x);
    std::vector<long double> mean(channels), m2(channels), size(channels);
    const auto channel = [&](size_t i) { return i / static_cast<size_t>(shape.inner) % channels; };
    for (size_t i = 0; i < values.size(); ++i) mean[channel(i)] += values[i], size[channel(i)] += std::fabs(values[i]);
    for (long double& m : mean) m /= static_cast<long double>(shape.rows * shape.inner);
    for (size_t i = 0; i < values.size(); ++i)
      m2[channel(i)] += (values[i] - mean[channel(i)]) * (values[i] - mean[channel(i)]);
    expect_equal(out[0], static_cast<double>(shape.rows * shape.inner), "count");
    for (size_t c = 0; c < channels; ++c) {
      near(out[1 + c], mean[c], size[c], "mean");
      near(out[1 + channels + c], m2[c], m2[c] + 1, "m2");
    }
  });
}

ddp_case(a_mean_far_from_zero_costs_no_digits) {
  for (const Shape& shape : {Shape{40, 1, 999}, Shape{9000, 1, 1}, Shape{600, 1, 10}}) {
    const ddp_gpu_batch batch = batch_of(shape, DDP_F64);
    WildArray x(DDP_F64, values_of(shape));
    for (int64_t i = 0; i < x.count(); ++i) x.as<double>()[i] = 1e9 + static_cast<double>(i % 3 - 1);
    double out[3];
    auto scratch = scratch_for(batch);
    static_cast<void>(cuda::bn_moments(&batch, x.data(), out, scratch.data(), nullptr));
    const double wanted = static_cast<double>(x.count()) * 2 / 3;
    near(out[2], wanted, wanted * 1e6L, "m2");  // its square has not one digit left for it
  }
}

ddp_case(equal_values_have_no_variance) {
  for (const Shape& shape : kShapes) {
    const ddp_gpu_batch batch = batch_of(shape, DDP_F32);
    WildArray x(DDP_F32, values_of(shape));
    for (int64_t i = 0; i < x.count(); ++i) x.as<float>()[i] = 0.1F;
    std::vector<double> out(1 + 2 * static_cast<size_t>(shape.channels));
    auto scratch = scratch_for(batch);
    static_cast<void>(cuda::bn_moments(&batch, x.data(), out.data(), scratch.data(), nullptr));
    for (size_t c = 0; c < static_cast<size_t>(shape.channels); ++c) {
      near(out[1 + c], static_cast<double>(0.1F), 1, "mean");
      near(out[1 + static_cast<size_t>(shape.channels) + c], 0, 1e-16L * static_cast<long double>(x.count()), "m2");
    }
  }
}

ddp_case(an_empty_batch_counts_nothing) {
  for (const Shape& shape : {Shape{0, 3, 5}, Shape{0, 3, 64}, Shape{4, 3, 0}}) {
    const ddp_gpu_batch batch = batch_of(shape, DDP_F32);
    std::vector<double> out(7, -1), sums(6, -1);
    auto scratch = scratch_for(batch);
    expect_equal(cuda::bn_moments(&batch, nullptr, out.data(), scratch.data(), nullptr), 0, "code");
    expect(out == std::vector<double>(7), "all zeros");
    const ddp_gpu_channels none{};
    expect_equal(cuda::bn_sums(&batch, nullptr, nullptr, &none, sums.data(), scratch.data(), nullptr), 0, "code");
    expect(sums == std::vector<double>(6), "all zeros");
  }
}

ddp_case(sums_are_those_of_the_values) {
  each_case([](const Shape& shape, ddp_dtype dtype) {
    const ddp_gpu_batch batch = batch_of(shape, dtype);
    WildArray x(dtype, values_of(shape), 1), dy(dtype, values_of(shape)), mean(DDP_F32, shape.channels);
    x.fill(1, false), dy.fill(2, false), mean.fill(3, false);
    const auto channels = static_cast<size_t>(shape.channels);
    std::vector<double> out(2 * channels, -1);
    auto scratch = scratch_for(batch);
    const ddp_gpu_channels means{mean.data(), DDP_F32, 0};
    expect_equal(cuda::bn_sums(&batch, dy.data(), x.data(), &means, out.data(), scratch.data(), nullptr), 0, "code");
    const auto xs = in_double(x), gs = in_double(dy), ms = in_double(mean);
    std::vector<long double> sum(channels), product(channels), size(channels, 1);
    for (size_t i = 0; i < xs.size(); ++i) {
      const size_t c = i / static_cast<size_t>(shape.inner) % channels;
      sum[c] += gs[i], product[c] += static_cast<long double>(gs[i]) * (xs[i] - ms[c]),
          size[c] += std::fabs(gs[i]) * (1 + std::fabs(xs[i] - ms[c]));
    }
    for (size_t c = 0; c < channels; ++c) {
      near(out[c], sum[c], size[c], "sum");
      near(out[channels + c], product[c], size[c], "product");
    }
  });
}

ddp_case(sets_join_as_the_cpus_do) {
  batch_norm::Moments cpus(1);
  cuda::Set all{0, 0, 0};
  for (const cuda::Set& more : {cuda::Set{3, 1.5, 0.25}, {0, 7, 7}, {100, -3, 12}, {1, 1e6, 0}}) {
    batch_norm::join(cpus, more.count, &more.mean, &more.m2);
    all = cuda::joined(all, more);
    expect_equal(all.count, cpus.count, "count");
    expect_equal(all.mean, cpus.mean[0], "mean");
    expect_equal(all.m2, cpus.m2[0], "m2");
  }
}

ddp_case(parts_cover_everything_once) {
  for (int64_t count = 0; count < 40; ++count)
    for (int64_t parts = 1; parts < 12; ++parts) {
      int64_t at = 0;
      for (int64_t k = 0; k < parts; ++k) {
        const cuda::Part part = cuda::part_of(count, parts, k);
        expect_equal(part.begin, at, "begin");
        expect(part.end - part.begin <= count / parts + 1, "even");
        at = part.end;
      }
      expect_equal(at, count, "end");
    }
}

ddp_case(few_channels_are_spread_over_many_blocks) {
  const auto blocks = [](int64_t rows, int64_t channels, int64_t inner) {
    return cuda::division_of({rows, channels, inner, DDP_F32, 0}).blocks();
  };
  expect(blocks(64, 3, 224 * 224) >= 300, "3 channels of images");
  expect(blocks(4096, 4, 1) >= 30, "4 columns");
  expect(blocks(256, 2048, 49) == 2048, "a block for each channel is enough");
  expect(blocks(1 << 20, 1 << 16, 1) == 2048, "as many as there are groups of columns");
}
