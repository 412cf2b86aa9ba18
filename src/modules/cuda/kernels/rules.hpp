// SPDX-License-Identifier: Apache-2.0
// The formulas of the update rules (device/cpu/update_kernels.hpp, where they are written out) for one element, in its
// compute type and in the same order of operations, without fused multiply-add. Pure functions, also for the host.
// Tested by unit/cuda/rules_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "device/gpu/gpu_abi.h"
#include "modules/cuda/kernels/numbers.hpp"

namespace ddp::cuda {

/// g * scale, limited. A NaN is above and below nothing, so it stays.
template <class T>
DDP_HD T shaped(T x, T scale, T limit) noexcept {
  x = x * scale;
  x = x > limit ? limit : x;
  return x < -limit ? -limit : x;
}

template <class T>
struct AdamScalars {
  T keep, weight_decay, beta1, share1, beta2, share2, size, root_scale, epsilon;
  bool decays;
  DDP_HD explicit AdamScalars(const ddp_gpu_adam_rule& r) noexcept
      : keep(static_cast<T>(r.keep)),
        weight_decay(static_cast<T>(r.weight_decay)),
        beta1(static_cast<T>(r.beta1)),
        share1(static_cast<T>(r.share1)),
        beta2(static_cast<T>(r.beta2)),
        share2(static_cast<T>(r.share2)),
        size(static_cast<T>(r.size)),
        root_scale(static_cast<T>(r.root_scale)),
        epsilon(static_cast<T>(r.epsilon)),
        decays(r.weight_decay != 0) {}
  AdamScalars() = default;
};

DDP_HD float root(float x) noexcept { return sqrtf(x); }
DDP_HD double root(double x) noexcept { return sqrt(x); }

template <class T>
DDP_HD void adam(const AdamScalars<T>& rule, T grad, T& value, T& mean, T& square) noexcept {
  const T kept = value * rule.keep;
  if (rule.decays) grad = grad + rule.weight_decay * kept;
  mean = rule.beta1 * mean + rule.share1 * grad;
  square = rule.beta2 * square + rule.share2 * grad * grad;
  value = kept - rule.size * mean / (root(square) * rule.root_scale + rule.epsilon);
}

template <class T>
struct SgdScalars {
  T rate, weight_decay, momentum, gradient_share;
  int32_t mode, nesterov;
  bool decays;
  DDP_HD explicit SgdScalars(const ddp_gpu_sgd_rule& r) noexcept
      : rate(static_cast<T>(r.rate)),
        weight_decay(static_cast<T>(r.weight_decay)),
        momentum(static_cast<T>(r.momentum)),
        gradient_share(static_cast<T>(r.gradient_share)),
        mode(r.mode),
        nesterov(r.nesterov),
        decays(r.weight_decay != 0) {}
  SgdScalars() = default;
};

/// `buffer` is neither read nor written in mode 0.
template <class T>
DDP_HD void sgd(const SgdScalars<T>& rule, T grad, T& value, T& buffer) noexcept {
  T direction = grad;
  if (rule.decays) direction = direction + rule.weight_decay * value;
  if (rule.mode != 0) {
    buffer = rule.mode == 2 ? rule.momentum * buffer + rule.gradient_share * direction : direction;
    direction = rule.nesterov != 0 ? direction + rule.momentum * buffer : buffer;
  }
  value = value - rule.rate * direction;
}

template <class T>
DDP_HD T averaged(T average, T value, T decay, T share) noexcept {
  return decay * average + share * value;
}

/// The master of a 16-bit parameter: where the parameter is no longer its master rounded, its owner has changed it, and the
/// master begins anew from it (optim/masters.hpp).
template <class E>
DDP_HD float refreshed(float master, E value) noexcept {
  return Narrow<E>::of(master).bits == value.bits ? master : widened(value);
}

}  // namespace ddp::cuda
