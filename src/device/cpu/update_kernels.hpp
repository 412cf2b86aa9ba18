// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the update rules as flat loops: pure functions over arrays, one pass over memory, no allocation, no
// model.
// Any sub-range of an array gives the bits that the whole array gives, so a rule can be applied to the slice of a bucket
// that was reduced a moment ago and is still in cache.
//
// Compute type T is the parameter's type, F32 for F16 and BF16. Values and gradients are of the parameter's type, moments
// and averages of type T. Every scalar below is computed in F64 and rounded to T once, at entry; an element is widened to T,
// computed without fused multiply-add, with IEEE division and square root, and rounded to its type once. So all instruction
// sets give the same bits (except the payload of a NaN), whatever the calling thread's rounding mode is and whether it
// flushes subnormal numbers.
// Arrays must not overlap; any alignment of the element type works, 64 bytes are fastest. Any thread.
// Tested by unit/device/update_kernels_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "ddp/types.h"

namespace ddp::cpu {

/// What a gradient goes through before a rule uses it:  g = g * scale;  g = g > limit ? limit : g < -limit ? -limit : g.
struct GradShape {
  double scale = 1;
  double limit = std::numeric_limits<double>::infinity();
  [[nodiscard]] bool changes() const noexcept { return scale != 1 || !std::isinf(limit); }
};

/// What happens to a momentum buffer.
enum class Momentum { kNone, kFirst, kRunning };

/// One step of stochastic gradient descent (rules.hpp makes it):
///   g = g + weight_decay * p                                    (if weight_decay is not 0)
///   b = g                                                       (kFirst)
///   b = momentum * b + gradient_share * g                       (kRunning)
///   d = g (kNone),  b,  or with nesterov  g + momentum * b
///   p = p - rate * d
struct SgdStep {
  double rate = 0;
  double weight_decay = 0;
  double momentum = 0;
  double gradient_share = 1;  // 1 - dampening
  Momentum mode = Momentum::kNone;
  bool nesterov = false;
  GradShape shape{};
};

/// One step of Adam or AdamW:
///   p = p * keep                                                (AdamW: 1 - rate * decay; else 1)
///   g = g + weight_decay * p                                    (if weight_decay is not 0: Adam)
///   m = beta1 * m + share1 * g
///   v = beta2 * v + share2 * g * g                              (from left to right)
///   p = p - (size * m) / (sqrt(v) * root_scale + epsilon)
struct AdamStep {
  double keep = 1;
  double weight_decay = 0;
  double beta1 = 0;
  double share1 = 1;  // 1 - beta1
  double beta2 = 0;
  double share2 = 1;      // 1 - beta2
  double size = 0;        // rate / (1 - beta1^step)
  double root_scale = 1;  // 1 / sqrt(1 - beta2^step)
  double epsilon = 0;
  GradShape shape{};
};

/// `buffer` may be NULL when the mode is kNone.
void sgd_update(const SgdStep& step, ddp_dtype dtype, void* value, const void* grad, void* buffer, int64_t count) noexcept;

void adam_update(const AdamStep& step, ddp_dtype dtype, void* value, const void* grad, void* exp_avg, void* exp_avg_sq,
                 int64_t count) noexcept;

/// A moment: where it is, and where the new one goes.
struct Moved {
  void* from = nullptr;
  void* to = nullptr;
};
/// The same rules; what was at `from` stays as it is. Where the machine can, the new moments go past the caches, and others
/// see them only behind a stream_fence().
void sgd_update(const SgdStep& step, ddp_dtype dtype, void* value, const void* grad, const Moved& buffer,
                int64_t count) noexcept;
void adam_update(const AdamStep& step, ddp_dtype dtype, void* value, const void* grad, const Moved& exp_avg,
                 const Moved& exp_avg_sq, int64_t count) noexcept;

/// averages[k] = decays[k] * averages[k] + (1 - decays[k]) * value for all k; `value` comes from memory once.
void ema_update(const double* decays, int32_t decay_count, ddp_dtype dtype, const void* value, void* const* averages,
                int64_t count) noexcept;

/// The type T of moments and averages.
[[nodiscard]] constexpr ddp_dtype moment_dtype(ddp_dtype dtype) noexcept { return dtype == DDP_F64 ? DDP_F64 : DDP_F32; }

}  // namespace ddp::cpu
