// SPDX-License-Identifier: Apache-2.0
// F32 copies of F16 or BF16 arrays (master weights) in host memory: a rule works on the copy, and the array is the copy
// rounded. Where an element is no longer its copy rounded, its owner has changed it, and the copy begins anew from it. No
// allocation. Any thread. Tested by unit/optim/masters_test.cpp and unit/device/host_test.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ddp/types.h"

namespace ddp::cpu {

inline constexpr int64_t kMasterBlock = 2048;  // elements: what a rule is given at once stays in cache

/// Elements that their owner has changed.
void refresh_copy(ddp_dtype dtype, const void* value, float* copy, int64_t count) noexcept;
void widen(ddp_dtype dtype, const void* from, float* to, int64_t count) noexcept;
void narrow(ddp_dtype dtype, const float* from, void* to, int64_t count) noexcept;

/// rule(copy, gradient, at, n) on F32 arrays, kMasterBlock elements at a time.
template <class Rule>
void update_masters(ddp_dtype dtype, void* value, const void* grad, float* copy, int64_t count, Rule&& rule) {
  constexpr int64_t kHalf = 2;  // bytes of an element
  for (int64_t at = 0; at < count; at += kMasterBlock) {
    const int64_t n = std::min(count - at, kMasterBlock);
    auto* const part = static_cast<std::byte*>(value) + at * kHalf;
    refresh_copy(dtype, part, copy + at, n);
    alignas(64) float gradient[kMasterBlock];
    widen(dtype, static_cast<const std::byte*>(grad) + at * kHalf, gradient, n);
    rule(copy + at, gradient, at, n);
    narrow(dtype, copy + at, part, n);
  }
}

}  // namespace ddp::cpu
