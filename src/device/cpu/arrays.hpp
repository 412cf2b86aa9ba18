// One-pass loops over an array: scale, norms, non-finite count, conversion. Deterministic: blocks of fixed size are summed
// in F64 in a fixed order, whatever the instruction set and the caller's floating-point environment. dtype is a floating one
// everywhere. Any thread. Tested by unit/device/arrays_test.cpp.
#pragma once

#include <cstdint>

#include "ddp/types.h"

namespace ddp::cpu {

/// data[i] = data[i] * factor, in the accumulator type (the factor too), rounded once.
void scale(ddp_dtype dtype, void* data, int64_t count, double factor) noexcept;

/// Sum of |x| (p == 1), of x^2 (p == 2), or the largest |x| (p == infinity) in F64. A NaN gives NaN.
[[nodiscard]] double norm_part(ddp_dtype dtype, const void* data, int64_t count, double p) noexcept;

/// How many elements are infinite or NaN.
[[nodiscard]] int64_t count_nonfinite(ddp_dtype dtype, const void* data, int64_t count) noexcept;

/// Convert between floating dtypes, round to nearest even, once. A NaN stays a NaN, with its sign. The arrays do not
/// overlap.
void convert(ddp_dtype from, const void* source, ddp_dtype to, void* target, int64_t count) noexcept;

}  // namespace ddp::cpu
