// SPDX-License-Identifier: Apache-2.0
// Arrays of F32 as small integers: blocks of 256 elements share a scale, their largest magnitude over 127 (8 bits) or 7 (4
// bits), and each element is the nearest multiple of it. A block that is not finite becomes NaN as a whole.
//
// Packed: the scales of all blocks (F32), then the integers, with 4 bits two a byte, the first in the low half.
// The error of an element is at most half a scale. Any thread.
// Tested by unit/extra/quantise_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::outer {

inline constexpr int64_t kQuantisedBlock = 256;

/// `bits` is 8 or 4 everywhere.
[[nodiscard]] int64_t packed_bytes(int64_t count, int32_t bits) noexcept;

/// `lost`: what each element loses is written there, zero where the block is not finite; NULL: nowhere.
void quantise(const float* data, int64_t count, int32_t bits, std::byte* packed, float* lost) noexcept;

/// data = the sum over `ranks` packed arrays, `stride` bytes apart, in the tree over the ranks; divided by `divisor`.
void add_quantised(const std::byte* packed, int64_t stride, int32_t ranks, int64_t count, int32_t bits, float divisor,
                   float* data) noexcept;

}  // namespace ddp::outer
