// SPDX-License-Identifier: Apache-2.0
// Batch normalisation for one channel: extra/batch_norm/batch_norm.cpp's arithmetic, in the same order of operations.
// Pure functions, also for the host.
// Tested by unit/cuda/batch_norm_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "ddp/types.h"
#include "modules/cuda/kernels/moments.hpp"

namespace ddp::cuda {

/// A channel's number in F64; `otherwise` without an array.
DDP_HD double channel_of(const ddp_gpu_channels& from, int64_t c, double otherwise) noexcept {
  if (from.data == nullptr) return otherwise;
  switch (from.dtype) {
    case DDP_F64: return static_cast<const double*>(from.data)[c];
    case DDP_F16: return static_cast<double>(widened(static_cast<const Half*>(from.data)[c]));
    case DDP_BF16: return static_cast<double>(widened(static_cast<const Bfloat*>(from.data)[c]));
    default: return static_cast<double>(static_cast<const float*>(from.data)[c]);
  }
}

DDP_HD void set_channel(const ddp_gpu_channels& to, int64_t c, double value) noexcept {
  if (to.data == nullptr) return;
  switch (to.dtype) {
    case DDP_F64: static_cast<double*>(to.data)[c] = value; return;
    case DDP_F16: static_cast<Half*>(to.data)[c] = Narrow<Half>::of(value); return;
    case DDP_BF16: static_cast<Bfloat*>(to.data)[c] = Narrow<Bfloat>::of(value); return;
    default: static_cast<float*>(to.data)[c] = Narrow<float>::of(value); return;
  }
}

/// One channel of bn_join.
DDP_HD void join_channel(const ddp_gpu_bn_join& join, int64_t c) noexcept {
  const int64_t channels = join.channels;
  double mean = channel_of(join.running_mean, c, 0);
  double var = channel_of(join.running_var, c, 1);
  if (join.blocks != nullptr) {
    Set all{0, 0, 0};
    for (int64_t rank = 0; rank < join.block_count; ++rank) {
      const double* const there = join.blocks + rank * (1 + 2 * channels);
      all = joined(all, {there[0], there[1 + c], there[1 + channels + c]});
    }
    if (all.count == 0) return;
    if (join.running_mean.data != nullptr) {
      const double share = join.momentum;
      set_channel(join.running_mean, c, (1 - share) * mean + share * all.mean);
      set_channel(join.running_var, c, (1 - share) * var + share * (all.m2 / (all.count - 1)));
    }
    mean = all.mean;
    var = all.m2 / all.count;
  }
  const double invstd = 1 / sqrt(var + join.epsilon);
  set_channel(join.saved_mean, c, mean);
  set_channel(join.saved_invstd, c, invstd);
  join.coefficients[c] = mean;
  join.coefficients[channels + c] = channel_of(join.weight, c, 1) * invstd;
  join.coefficients[2 * channels + c] = channel_of(join.bias, c, 0);
}

/// One channel of bn_slopes.
DDP_HD void slope_channel(const ddp_gpu_bn_slopes& s, int64_t c) noexcept {
  const int64_t channels = s.channels;
  const double invstd = channel_of(s.saved_invstd, c, 0);
  if (s.coefficients != nullptr) {
    const double factor = channel_of(s.weight, c, 1) * invstd;
    s.coefficients[c] = channel_of(s.saved_mean, c, 0);
    s.coefficients[channels + c] = factor;
    s.coefficients[2 * channels + c] = factor * invstd * invstd * (s.all[channels + c] * s.share);
    s.coefficients[3 * channels + c] = factor * (s.all[c] * s.share);
  }
  const double dweight = s.own[channels + c] * invstd;
  const double dbias = s.own[c];
  set_channel(s.dweight, c, s.accumulate != 0 ? dweight + channel_of(s.dweight, c, 0) : dweight);
  set_channel(s.dbias, c, s.accumulate != 0 ? dbias + channel_of(s.dbias, c, 0) : dbias);
}

/// The channel of an element of the flat array, and how far into its stretch it is. Advances element by element.
struct Place {
  int64_t channel;
  int64_t inside;
  DDP_HD void next(int64_t channels, int64_t inner) noexcept {
    const bool last = inside + 1 == inner;
    inside = last ? 0 : inside + 1;
    channel += last ? 1 : 0;
    channel = channel == channels ? 0 : channel;
  }
};
DDP_HD Place place_of(int64_t element, int64_t channels, int64_t inner) noexcept {
  if (((element | channels | inner) >> 32) == 0) {  // divisions of 64 bits are slow on a GPU
    const auto at = static_cast<uint32_t>(element);
    const uint32_t run = at / static_cast<uint32_t>(inner);
    return {run % static_cast<uint32_t>(channels), at - run * static_cast<uint32_t>(inner)};
  }
  const int64_t run = element / inner;
  return {run % channels, element - run * inner};
}

}  // namespace ddp::cuda
