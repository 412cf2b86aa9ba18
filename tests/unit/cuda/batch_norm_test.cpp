// SPDX-License-Identifier: Apache-2.0
// Batch normalisation's factors and elementwise passes, by the kernels on the host, compared with the CPU's, bit for bit.
#include "modules/cuda/kernels/batch_norm.hpp"

#include "device/cpu/arrays.hpp"
#include "extra/batch_norm/moments.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

using Doubles = std::vector<double>;

Doubles random_doubles(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Doubles values(count);
  for (double& x : values) x = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
  return values;
}

Doubles in_double(const WildArray& array) {
  WildArray wide(DDP_F64, array.count());
  cpu::convert(array.dtype(), array.data(), DDP_F64, wide.data(), array.count());
  return {wide.as<double>(), wide.as<double>() + array.count()};
}

/// One number for each channel.
struct Channels {
  WildArray array;
  explicit Channels(ddp_dtype dtype, int64_t count, uint64_t seed) : array(dtype, count) { array.fill(seed, false); }
  [[nodiscard]] ddp_gpu_channels view() { return {array.data(), array.dtype(), 0}; }
  void expect_is(const Doubles& wanted, const std::string& what) const {
    WildArray rounded(array.dtype(), array.count());
    cpu::convert(DDP_F64, wanted.data(), array.dtype(), rounded.data(), array.count());
    array.expect_same(rounded, what);
  }
};

constexpr int64_t kChannels = 300;

/// Blocks of several ranks, one of them without a batch.
Doubles some_blocks(size_t ranks) {
  Doubles blocks;
  for (size_t rank = 0; rank < ranks; ++rank) {
    blocks.push_back(rank == 1 ? 0 : static_cast<double>(3 + rank));
    const Doubles mean = random_doubles(kChannels, rank), m2 = random_doubles(kChannels, 100 + rank);
    for (const double x : mean) blocks.push_back(x);
    for (const double x : m2) blocks.push_back(x * x);
  }
  return blocks;
}

batch_norm::Moments joined_by_cpu(const Doubles& blocks) {
  batch_norm::Moments moments(kChannels);
  for (size_t at = 0; at < blocks.size(); at += 1 + 2 * kChannels)
    batch_norm::join(moments, blocks[at], blocks.data() + at + 1, blocks.data() + at + 1 + kChannels);
  return moments;
}

/// Everything that bn_join may be given, all of one dtype.
struct JoinCase {
  Channels weight, bias, running_mean, running_var, saved_mean, saved_invstd;
  Doubles coefficients = Doubles(3 * kChannels, -7);
  explicit JoinCase(ddp_dtype dtype)
      : weight(dtype, kChannels, 1),
        bias(dtype, kChannels, 2),
        running_mean(dtype, kChannels, 3),
        running_var(dtype, kChannels, 4),
        saved_mean(dtype, kChannels, 5),
        saved_invstd(dtype, kChannels, 6) {
    running_var.array.make_positive();
  }
  ddp_gpu_bn_join join(const Doubles* blocks) {
    return {blocks != nullptr ? blocks->data() : nullptr,
            blocks != nullptr ? static_cast<int64_t>(blocks->size() / (1 + 2 * kChannels)) : 0,
            kChannels,
            1e-5,
            0.1,
            weight.view(),
            bias.view(),
            running_mean.view(),
            running_var.view(),
            saved_mean.view(),
            saved_invstd.view(),
            coefficients.data()};
  }
};

ddp_case(training_joins_all_ranks) {
  for (const ddp_dtype dtype : kFloats)
    for (const size_t ranks : {1U, 2U, 5U}) {
      JoinCase c(dtype);
      const Doubles weight = in_double(c.weight.array), bias = in_double(c.bias.array);
      Doubles running_mean = in_double(c.running_mean.array), running_var = in_double(c.running_var.array);
      const Doubles blocks = some_blocks(ranks);
      const ddp_gpu_bn_join join = c.join(&blocks);
      expect_equal(cuda::bn_join(&join, nullptr, nullptr), 0, "code");
      const batch_norm::Moments moments = joined_by_cpu(blocks);
      Doubles invstd(kChannels), coefficients = moments.mean;
      for (size_t k = 0; k < kChannels; ++k) {
        running_mean[k] = (1 - 0.1) * running_mean[k] + 0.1 * moments.mean[k];
        running_var[k] = (1 - 0.1) * running_var[k] + 0.1 * (moments.m2[k] / (moments.count - 1));
        invstd[k] = 1 / std::sqrt(moments.m2[k] / moments.count + 1e-5);
        coefficients.push_back(weight[k] * invstd[k]);
      }
      coefficients.insert(coefficients.end(), bias.begin(), bias.end());
      expect(c.coefficients == coefficients, "coefficients");
      c.running_mean.expect_is(running_mean, "running mean");
      c.running_var.expect_is(running_var, "running variance");
      c.saved_mean.expect_is(moments.mean, "saved mean");
      c.saved_invstd.expect_is(invstd, "saved invstd");
    }
}

ddp_case(without_blocks_the_running_statistics_are_used) {
  JoinCase c(DDP_F16);
  const Doubles mean = in_double(c.running_mean.array), var = in_double(c.running_var.array);
  const WildArray before = c.running_mean.array;
  const ddp_gpu_bn_join join = c.join(nullptr);
  expect_equal(cuda::bn_join(&join, nullptr, nullptr), 0, "code");
  c.running_mean.array.expect_same(before, "running mean");
  for (size_t k = 0; k < kChannels; ++k) {
    expect_equal(c.coefficients[k], mean[k], "mean");
    expect_equal(c.coefficients[kChannels + k], in_double(c.weight.array)[k] * (1 / std::sqrt(var[k] + 1e-5)), "factor");
  }
}

ddp_case(what_is_not_given_has_its_default) {
  const Doubles blocks = some_blocks(3);
  Doubles coefficients(3 * kChannels);
  const ddp_gpu_bn_join join{blocks.data(), 3, kChannels, 1e-5, 0.1, {}, {}, {}, {}, {}, {}, coefficients.data()};
  expect_equal(cuda::bn_join(&join, nullptr, nullptr), 0, "code");
  const batch_norm::Moments moments = joined_by_cpu(blocks);
  expect_equal(coefficients[kChannels + 7], 1 / std::sqrt(moments.m2[7] / moments.count + 1e-5), "factor");
  expect_equal(coefficients[2 * kChannels + 7], 0.0, "shift");
}

ddp_case(nothing_is_written_without_values_or_when_stopped) {
  Doubles empty = some_blocks(1);
  empty[0] = 0;
  const Doubles full = some_blocks(1);
  uint32_t stop = 1;
  for (const bool stopped : {false, true}) {
    JoinCase c(DDP_F32);
    const JoinCase before = c;
    const ddp_gpu_bn_join join = c.join(stopped ? &full : &empty);
    expect_equal(cuda::bn_join(&join, stopped ? &stop : nullptr, nullptr), 0, "code");
    c.running_mean.array.expect_same(before.running_mean.array, "running mean");
    c.saved_mean.array.expect_same(before.saved_mean.array, "saved mean");
    expect(c.coefficients == before.coefficients, "coefficients");
  }
}

constexpr batch_norm::Shape kShapes[] = {{2, 3, 1},    {50, 33, 1},  {9, 5, 7}, {3, 4, 49},
                                         {2, 3, 4100}, {40, 300, 2}, {1, 1, 1}, {0, 3, 4}};

ddp_case(forward_is_the_cpus) {
  for (const ddp_dtype dtype : kFloats)
    for (const batch_norm::Shape& shape : kShapes)
      for (const int64_t offset : {0, 1}) {
        const int64_t count = shape.rows * shape.channels * shape.inner;
        const auto channels = static_cast<size_t>(shape.channels);
        WildArray x(dtype, count, offset), y(dtype, count, offset), wanted(dtype, count);
        x.fill(1);
        const Doubles c = random_doubles(3 * channels, 2);
        const ddp_gpu_batch batch{shape.rows, shape.channels, shape.inner, dtype, 0};
        expect_equal(cuda::bn_apply(&batch, x.data(), c.data(), y.data(), nullptr, nullptr), 0, "code");
        batch_norm::apply_forward(dtype, x.data(), shape, c.data(), c.data() + channels, c.data() + 2 * channels,
                                  wanted.data());
        y.expect_same(wanted, "y");
        expect_equal(cuda::bn_apply(&batch, x.data(), c.data(), x.data(), nullptr, nullptr), 0, "code");
        x.expect_same(wanted, "in place");
      }
}

ddp_case(backward_is_the_cpus) {
  for (const ddp_dtype dtype : kFloats)
    for (const batch_norm::Shape& shape : kShapes)
      for (const int64_t offset : {0, 1}) {
        const int64_t count = shape.rows * shape.channels * shape.inner;
        const auto channels = static_cast<size_t>(shape.channels);
        WildArray x(dtype, count, offset), dy(dtype, count, offset), dx(dtype, count), wanted(dtype, count);
        x.fill(1), dy.fill(2);
        const Doubles c = random_doubles(4 * channels, 3);
        const ddp_gpu_batch batch{shape.rows, shape.channels, shape.inner, dtype, 0};
        expect_equal(cuda::bn_apply_backward(&batch, dy.data(), x.data(), c.data(), dx.data(), nullptr, nullptr), 0, "code");
        batch_norm::apply_backward(dtype, dy.data(), x.data(), shape, c.data(), c.data() + channels, c.data() + 2 * channels,
                                   c.data() + 3 * channels, wanted.data());
        dx.expect_same(wanted, "dx");
        uint32_t stop = 1;
        expect_equal(cuda::bn_apply_backward(&batch, dy.data(), x.data(), c.data(), wanted.data(), &stop, nullptr), 0,
                     "code");
        dx.expect_same(wanted, "stopped");
      }
}

ddp_case(slopes_are_the_formulas) {
  for (const ddp_dtype dtype : kFloats)
    for (const int32_t accumulate : {0, 1}) {
      Channels weight(dtype, kChannels, 1), mean(dtype, kChannels, 2), invstd(dtype, kChannels, 3),
          dweight(dtype, kChannels, 4), dbias(dtype, kChannels, 5);
      const Doubles own = random_doubles(2 * kChannels, 6), all = random_doubles(2 * kChannels, 7);
      const Doubles w = in_double(weight.array), m = in_double(mean.array), s = in_double(invstd.array);
      Doubles coefficients(4 * kChannels), wanted = m, weights = in_double(dweight.array), biases = in_double(dbias.array);
      const double share = 1.0 / 37;
      const ddp_gpu_bn_slopes slopes{
          own.data(),    all.data(),  kChannels,     share,          accumulate,   0,
          weight.view(), mean.view(), invstd.view(), dweight.view(), dbias.view(), coefficients.data()};
      expect_equal(cuda::bn_slopes(&slopes, nullptr, nullptr), 0, "code");
      for (size_t c = 0; c < kChannels; ++c) wanted.push_back(w[c] * s[c]);
      for (size_t c = 0; c < kChannels; ++c) wanted.push_back(w[c] * s[c] * s[c] * s[c] * (all[kChannels + c] * share));
      for (size_t c = 0; c < kChannels; ++c) wanted.push_back(w[c] * s[c] * (all[c] * share));
      expect(coefficients == wanted, "coefficients");
      for (size_t c = 0; c < kChannels; ++c) {
        weights[c] = own[kChannels + c] * s[c] + (accumulate != 0 ? weights[c] : 0);
        biases[c] = own[c] + (accumulate != 0 ? biases[c] : 0);
      }
      dweight.expect_is(weights, "dweight");
      dbias.expect_is(biases, "dbias");
    }
}

ddp_case(the_channel_of_an_element_is_found) {
  for (const int64_t base : {int64_t{0}, int64_t{5} << 33}) {
    cuda::Place place = cuda::place_of(base, 5, 7);
    for (int64_t i = base; i < base + 200; ++i, place.next(5, 7)) {
      expect_equal(place.channel, i / 7 % 5, "channel");
      expect_equal(place.inside, i % 7, "inside");
      expect_equal(cuda::place_of(i, 5, 7).channel, place.channel, "channel without a walk");
    }
  }
}
