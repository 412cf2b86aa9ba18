// SPDX-License-Identifier: Apache-2.0
// One-pass loops over an array: scale, norms, non-finite count, conversion. Deterministic: blocks of fixed size are summed
// in F64 in a fixed order, whatever the instruction set and the caller's floating-point environment, and the blocks' sums
// exactly. dtype is a floating one everywhere. Any thread.
// Tested by unit/device/arrays_test.cpp.
#pragma once

#include <cstdint>

#include "core/exact_sum.hpp"
#include "ddp/types.h"

namespace ddp::cpu {

/// data[i] = data[i] * factor, in the accumulator type (the factor too), rounded once.
void scale(ddp_dtype dtype, void* data, int64_t count, double factor) noexcept;

/// Elements above `limit` (0 or more) become it, those below -limit become that; a NaN stays.
void limit(ddp_dtype dtype, void* data, int64_t count, double limit) noexcept;

/// Adds the terms of a norm to `sum`: for every kNormBlock elements from `data` on, the sum of |x| (p == 1) or x^2 (p == 2)
/// in F64. So an array may be taken in parts that begin at multiples of kNormBlock, by several threads and ranks, and no bit
/// changes.
void add_norm_terms(ddp_dtype dtype, const void* data, int64_t count, double p, ExactSum& sum) noexcept;
inline constexpr int64_t kNormBlock = 1024;

/// The largest |x|; a NaN anywhere gives NaN.
[[nodiscard]] double largest_magnitude(ddp_dtype dtype, const void* data, int64_t count) noexcept;

/// How many elements are infinite or NaN.
[[nodiscard]] int64_t count_nonfinite(ddp_dtype dtype, const void* data, int64_t count) noexcept;

/// Convert between floating dtypes, round to nearest even, once. A NaN stays a NaN, with its sign. The arrays do not
/// overlap.
void convert(ddp_dtype from, const void* source, ddp_dtype to, void* target, int64_t count) noexcept;

}  // namespace ddp::cpu
