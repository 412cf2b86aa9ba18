// SPDX-License-Identifier: Apache-2.0
// Update rules as a program would write them, element by element, with the formulas of PyTorch's documents: the oracle of
// the built-in ones, and what ddp_optimizer_create_custom is tested with.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "ddp/custom.h"

namespace ddp::test {

struct OwnRule {
  enum class Kind { kSgd, kMomentum, kAdamW, kLion, kAdagrad } kind = Kind::kSgd;
  enum class End { kReturns, kThrows } end = End::kReturns;
  std::atomic<int> calls{0};
  std::atomic<int> fails_at{-1};    // that call fails
  std::atomic<int64_t> largest{0};  // elements of a slice
  std::atomic<bool> whole{true};    // every slice was a parameter from its first element on

  [[nodiscard]] const char* states() const {
    switch (kind) {
      case Kind::kSgd: return nullptr;
      case Kind::kMomentum: return "momentum_buffer";
      case Kind::kAdamW: return "exp_avg, exp_avg_sq";
      case Kind::kLion: return "exp_avg";
      case Kind::kAdagrad: return "sum";
    }
    return nullptr;
  }
};

inline double own_power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) result *= base;
  return result;
}

template <class T>
void own_update(OwnRule::Kind kind, const ddp_update_slice& slice) {
  auto* const p = static_cast<T*>(slice.value);
  const auto* const g = static_cast<const T*>(slice.grad);
  auto* const a = slice.state_count > 0 ? static_cast<T*>(slice.state[0]) : nullptr;
  auto* const b = slice.state_count > 1 ? static_cast<T*>(slice.state[1]) : nullptr;
  const auto rate = static_cast<T>(slice.rate), decay = static_cast<T>(slice.weight_decay);
  const auto keep = static_cast<T>(1 - slice.rate * slice.weight_decay);
  const auto momentum = static_cast<T>(0.9), beta1 = static_cast<T>(0.9), beta2 = static_cast<T>(0.999);
  const auto share1 = static_cast<T>(1 - 0.9), share2 = static_cast<T>(1 - 0.999), epsilon = static_cast<T>(1e-8);
  const auto size = static_cast<T>(slice.rate / (1 - own_power(0.9, slice.step)));
  const auto root = static_cast<T>(1 / std::sqrt(1 - own_power(0.999, slice.step)));
  for (int64_t i = 0; i < slice.count; ++i) {
    T direction = g[i];
    switch (kind) {
      case OwnRule::Kind::kSgd:
      case OwnRule::Kind::kMomentum:
        if (slice.weight_decay != 0) direction = direction + decay * p[i];
        if (a != nullptr) direction = a[i] = slice.step == 1 ? direction : momentum * a[i] + direction;
        p[i] = p[i] - rate * direction;
        break;
      case OwnRule::Kind::kAdamW:
        p[i] = p[i] * keep;
        a[i] = beta1 * a[i] + share1 * direction;
        b[i] = beta2 * b[i] + share2 * direction * direction;
        p[i] = p[i] - size * a[i] / (std::sqrt(b[i]) * root + epsilon);
        break;
      case OwnRule::Kind::kLion: {
        const T update = beta1 * a[i] + share1 * direction;
        p[i] = p[i] * keep - (update > 0 ? rate : update < 0 ? -rate : T{0});
        a[i] = beta2 * a[i] + share2 * direction;
        break;
      }
      case OwnRule::Kind::kAdagrad:
        a[i] = a[i] + direction * direction;
        p[i] = p[i] - rate * direction / (std::sqrt(a[i]) + epsilon);
        break;
    }
  }
}

/// A ddp_update_fn; user_data is an OwnRule. The call that fails has changed its slice.
inline int32_t own_rule(void* user_data, const ddp_update_slice* slice) {
  auto& rule = *static_cast<OwnRule*>(user_data);
  if (slice->count > rule.largest) rule.largest = slice->count;
  if (slice->first != 0) rule.whole = false;
  slice->dtype == DDP_F64 ? own_update<double>(rule.kind, *slice) : own_update<float>(rule.kind, *slice);
  if (rule.calls++ != rule.fails_at) return 0;
  if (rule.end == OwnRule::End::kThrows) throw std::runtime_error("the rule gives up");
  return 42;
}

}  // namespace ddp::test
