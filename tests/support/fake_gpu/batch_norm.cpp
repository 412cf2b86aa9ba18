// SPDX-License-Identifier: Apache-2.0
// Batch normalisation, with the arithmetic of extra/batch_norm/moments.hpp and the formulas of
// extra/batch_norm/batch_norm.cpp.
#include <cmath>
#include <optional>

#include "core/float_environment.hpp"
#include "device/cpu/arrays.hpp"
#include "extra/batch_norm/moments.hpp"
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/launch.hpp"

namespace ddp::test::fake_gpu::entry {
namespace {

using Doubles = std::vector<double>;

/// A value for each channel, at its real address.
struct Channels {
  std::byte* data = nullptr;
  ddp_dtype dtype = DDP_F64;
  size_t count = 0;

  [[nodiscard]] Doubles read(double otherwise) const {
    Doubles values(count, otherwise);
    if (data != nullptr) cpu::convert(dtype, data, DDP_F64, values.data(), static_cast<int64_t>(count));
    return values;
  }
  void write(const Doubles& values) const {
    if (data != nullptr) cpu::convert(DDP_F64, values.data(), dtype, data, static_cast<int64_t>(count));
  }
};

enum class Use { kRead, kWrite, kChange };

Channels real_channels(Touches& touches, const ddp_gpu_channels& channels, int64_t count, Use use) {
  Channels real{nullptr, static_cast<ddp_dtype>(channels.dtype), static_cast<size_t>(count)};
  if (channels.data == nullptr || count == 0) return real;
  const int64_t bytes = count * dtype_size(real.dtype);
  auto* const data = static_cast<std::byte*>(channels.data);
  if (use == Use::kRead)
    real.data = const_cast<std::byte*>(touches.read(data, bytes));
  else
    real.data = use == Use::kWrite ? touches.write(data, bytes) : touches.change(data, bytes);
  return real;
}

constexpr int64_t bytes_of(int64_t doubles) noexcept { return doubles * static_cast<int64_t>(sizeof(double)); }

batch_norm::Shape shape_of(const ddp_gpu_batch& batch) noexcept { return {batch.rows, batch.channels, batch.inner}; }
int64_t values_in(const ddp_gpu_batch& batch) noexcept { return batch.rows * batch.channels * batch.inner; }
int64_t bytes_of(const ddp_gpu_batch& batch) noexcept {
  return values_in(batch) * dtype_size(static_cast<ddp_dtype>(batch.dtype));
}

bool is_batch(const ddp_gpu_batch* batch) noexcept {
  return batch != nullptr && batch->rows >= 0 && batch->channels > 0 && batch->inner >= 0 && is_floating_dtype(batch->dtype);
}

/// Numbers per channel that follow each other; NULL stays NULL.
const double* real_numbers(Touches& touches, const double* numbers, int64_t count) {
  return numbers == nullptr ? nullptr : touches.read(numbers, bytes_of(count));
}

void put(double*& at, const Doubles& values) { at = std::copy(values.begin(), values.end(), at); }

struct Join {
  ddp_gpu_bn_join with;  // pointers to numbers at their real addresses
  Channels weight, bias, running_mean, running_var, saved_mean, saved_invstd;
};

/// Nothing if there is no value on any rank.
std::optional<batch_norm::Moments> joined(const Join& join) {
  batch_norm::Moments moments(join.with.channels);
  for (int64_t k = 0; k < join.with.block_count; ++k) {
    const double* const block = join.with.blocks + k * (1 + 2 * join.with.channels);
    batch_norm::join(moments, block[0], block + 1, block + 1 + join.with.channels);
  }
  if (moments.count == 0) return std::nullopt;
  return moments;
}

void update_running(const Join& join, const batch_norm::Moments& moments) {
  if (join.running_mean.data == nullptr) return;
  const double share = join.with.momentum;
  Doubles mean = join.running_mean.read(0), var = join.running_var.read(0);
  for (size_t c = 0; c < mean.size(); ++c) {
    mean[c] = (1 - share) * mean[c] + share * moments.mean[c];
    var[c] = (1 - share) * var[c] + share * (moments.m2[c] / (moments.count - 1));
  }
  join.running_mean.write(mean);
  join.running_var.write(var);
}

void run_join(const Join& join) {
  const StandardFloats environment;
  Doubles mean = join.running_mean.read(0), var = join.running_var.read(1);
  if (join.with.blocks != nullptr) {
    const std::optional<batch_norm::Moments> moments = joined(join);
    if (!moments) return;
    update_running(join, *moments);
    mean = moments->mean;
    var = moments->m2;
    for (double& each : var) each /= moments->count;
  }
  for (double& each : var) each = 1 / std::sqrt(each + join.with.epsilon);
  Doubles factor = join.weight.read(1);
  for (size_t c = 0; c < factor.size(); ++c) factor[c] *= var[c];
  double* at = join.with.coefficients;
  put(at, mean);
  put(at, factor);
  put(at, join.bias.read(0));
  join.saved_mean.write(mean);
  join.saved_invstd.write(var);
}

struct Slopes {
  ddp_gpu_bn_slopes with;
  Channels weight, saved_mean, saved_invstd, dweight, dbias;
};

void write_gradient(const Channels& to, bool accumulate, Doubles gradient) {
  if (to.data == nullptr) return;
  const Doubles before = accumulate ? to.read(0) : Doubles(gradient.size());
  for (size_t c = 0; c < gradient.size(); ++c) gradient[c] += before[c];
  to.write(gradient);
}

void run_slopes(const Slopes& s) {
  const StandardFloats environment;
  const auto channels = static_cast<size_t>(s.with.channels);
  const Doubles invstd = s.saved_invstd.read(0);
  if (s.with.coefficients != nullptr) {
    Doubles factor = s.weight.read(1), slope(channels), shift(channels);
    for (size_t c = 0; c < channels; ++c) {
      factor[c] *= invstd[c];
      slope[c] = factor[c] * invstd[c] * invstd[c] * (s.with.all[channels + c] * s.with.share);
      shift[c] = factor[c] * (s.with.all[c] * s.with.share);
    }
    double* at = s.with.coefficients;
    put(at, s.saved_mean.read(0));
    put(at, factor);
    put(at, slope);
    put(at, shift);
  }
  Doubles dweight(channels);
  for (size_t c = 0; c < channels; ++c) dweight[c] = s.with.own[channels + c] * invstd[c];
  write_gradient(s.dweight, s.with.accumulate != 0, std::move(dweight));
  write_gradient(s.dbias, s.with.accumulate != 0, Doubles(s.with.own, s.with.own + channels));
}

}  // namespace

int64_t bn_scratch_bytes(const ddp_gpu_batch* batch) { return is_batch(batch) ? bytes_of(2 * batch->channels) : 0; }

int32_t bn_moments(const ddp_gpu_batch* batch, const void* x, double* out, void* scratch, void* stream) {
  return launch("bn_moments", stream, [&](Touches& touches) -> Work {
    if (!is_batch(batch)) return nullptr;
    const auto* const from = touches.read(static_cast<const std::byte*>(x), bytes_of(*batch));
    double* const to = touches.write(out, bytes_of(1 + 2 * batch->channels));
    (void)touches.write(static_cast<std::byte*>(scratch), bn_scratch_bytes(batch));
    return [b = *batch, from, to] {
      const batch_norm::Moments moments = batch_norm::measure(static_cast<ddp_dtype>(b.dtype), from, shape_of(b));
      double* at = to;
      put(at, {moments.count});
      put(at, moments.mean);
      put(at, moments.m2);
    };
  });
}

int32_t bn_join(const ddp_gpu_bn_join* join, ddp_gpu_stop stop, void* stream) {
  return launch("bn_join", stream, [&](Touches& touches) -> Work {
    if (join == nullptr || join->channels <= 0) return nullptr;
    const int64_t n = join->channels;
    Join real{*join, {}, {}, {}, {}, {}, {}};
    real.with.blocks = real_numbers(touches, join->blocks, join->block_count * (1 + 2 * n));
    real.weight = real_channels(touches, join->weight, n, Use::kRead);
    real.bias = real_channels(touches, join->bias, n, Use::kRead);
    const Use running = join->blocks != nullptr ? Use::kChange : Use::kRead;
    real.running_mean = real_channels(touches, join->running_mean, n, running);
    real.running_var = real_channels(touches, join->running_var, n, running);
    real.saved_mean = real_channels(touches, join->saved_mean, n, Use::kWrite);
    real.saved_invstd = real_channels(touches, join->saved_invstd, n, Use::kWrite);
    real.with.coefficients = touches.write(join->coefficients, bytes_of(3 * n));
    return [real, word = touches.stop_word(stop)] {
      if (!is_stopped(word)) run_join(real);
    };
  });
}

int32_t bn_apply(const ddp_gpu_batch* batch, const void* x, const double* coefficients, void* y, ddp_gpu_stop stop,
                 void* stream) {
  return launch("bn_apply", stream, [&](Touches& touches) -> Work {
    if (!is_batch(batch)) return nullptr;
    const auto* const from = touches.read(static_cast<const std::byte*>(x), bytes_of(*batch));
    const double* const mean = touches.read(coefficients, bytes_of(3 * batch->channels));
    auto* const to = touches.write(static_cast<std::byte*>(y), bytes_of(*batch));
    return [b = *batch, from, mean, to, word = touches.stop_word(stop)] {
      if (is_stopped(word)) return;
      batch_norm::apply_forward(static_cast<ddp_dtype>(b.dtype), from, shape_of(b), mean, mean + b.channels,
                                mean + 2 * b.channels, to);
    };
  });
}

int32_t bn_sums(const ddp_gpu_batch* batch, const void* dy, const void* x, const ddp_gpu_channels* mean, double* out,
                void* scratch, void* stream) {
  return launch("bn_sums", stream, [&](Touches& touches) -> Work {
    if (!is_batch(batch) || mean == nullptr) return nullptr;
    const auto* const slopes = touches.read(static_cast<const std::byte*>(dy), bytes_of(*batch));
    const auto* const from = touches.read(static_cast<const std::byte*>(x), bytes_of(*batch));
    const Channels means = real_channels(touches, *mean, batch->channels, Use::kRead);
    double* const to = touches.write(out, bytes_of(2 * batch->channels));
    (void)touches.write(static_cast<std::byte*>(scratch), bn_scratch_bytes(batch));
    return [b = *batch, slopes, from, means, to] {
      const Doubles each = means.read(0);
      std::fill_n(to, 2 * b.channels, 0.0);
      batch_norm::gradient_sums(static_cast<ddp_dtype>(b.dtype), slopes, from, shape_of(b), each.data(), to,
                                to + b.channels);
    };
  });
}

int32_t bn_slopes(const ddp_gpu_bn_slopes* slopes, ddp_gpu_stop stop, void* stream) {
  return launch("bn_slopes", stream, [&](Touches& touches) -> Work {
    if (slopes == nullptr || slopes->channels <= 0) return nullptr;
    const int64_t n = slopes->channels;
    Slopes real{*slopes, {}, {}, {}, {}, {}};
    real.with.own = touches.read(slopes->own, bytes_of(2 * n));
    if (slopes->coefficients != nullptr) {
      real.with.all = touches.read(slopes->all, bytes_of(2 * n));
      real.with.coefficients = touches.write(slopes->coefficients, bytes_of(4 * n));
    }
    real.weight = real_channels(touches, slopes->weight, n, Use::kRead);
    real.saved_mean = real_channels(touches, slopes->saved_mean, n, Use::kRead);
    real.saved_invstd = real_channels(touches, slopes->saved_invstd, n, Use::kRead);
    const Use gradients = slopes->accumulate != 0 ? Use::kChange : Use::kWrite;
    real.dweight = real_channels(touches, slopes->dweight, n, gradients);
    real.dbias = real_channels(touches, slopes->dbias, n, gradients);
    return [real, word = touches.stop_word(stop)] {
      if (!is_stopped(word)) run_slopes(real);
    };
  });
}

int32_t bn_apply_backward(const ddp_gpu_batch* batch, const void* dy, const void* x, const double* coefficients, void* dx,
                          ddp_gpu_stop stop, void* stream) {
  return launch("bn_apply_backward", stream, [&](Touches& touches) -> Work {
    if (!is_batch(batch)) return nullptr;
    const auto* const slopes = touches.read(static_cast<const std::byte*>(dy), bytes_of(*batch));
    const auto* const from = touches.read(static_cast<const std::byte*>(x), bytes_of(*batch));
    const double* const mean = touches.read(coefficients, bytes_of(4 * batch->channels));
    auto* const to = touches.write(static_cast<std::byte*>(dx), bytes_of(*batch));
    return [b = *batch, slopes, from, mean, to, word = touches.stop_word(stop)] {
      if (is_stopped(word)) return;
      const int64_t n = b.channels;
      batch_norm::apply_backward(static_cast<ddp_dtype>(b.dtype), slopes, from, shape_of(b), mean, mean + n, mean + 2 * n,
                                 mean + 3 * n, to);
    };
  });
}

}  // namespace ddp::test::fake_gpu::entry
