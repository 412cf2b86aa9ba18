// SPDX-License-Identifier: Apache-2.0
// The two 16-bit floats, one value at a time: binary16 (5 bits of exponent, 10 of fraction) and bfloat16 (the upper half of
// an F32).
// To 16 bits: round to nearest even, too large becomes infinity, subnormal numbers are exact, a NaN stays a quiet NaN with
// its sign and the top of its payload. All in integers, so that the caller's rounding mode does not matter. Arrays:
// device/cpu/arrays.hpp.
// Any thread.
// Tested by unit/core/float16_test.cpp (every 16-bit value, and every tie between two of them).
#pragma once

#include <bit>
#include <cstdint>

namespace ddp {

[[nodiscard]] constexpr float half_to_float(uint16_t half) noexcept {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    const uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | quiet);
  }
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  if (magnitude == 0) return std::bit_cast<float>(sign);
  // Subnormal: shift the leading one to its place and count how far it went.
  const auto shift = static_cast<uint32_t>(std::countl_zero(magnitude)) - 21u;
  return std::bit_cast<float>(sign | (((113u - shift) << 23) + ((magnitude << shift & 0x3ffu) << 13)));
}

[[nodiscard]] constexpr uint16_t float_to_half(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x1ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and more; from 65520 on the rounding below carries into infinity
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14
    half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  } else if (magnitude > 0x33000000u) {              // above 2^-25, half of the smallest number
    const uint32_t drop = 126u - (magnitude >> 23);  // bits below the unit 2^-24
    const uint32_t mantissa = (magnitude & 0x007fffffu) | 0x00800000u;
    const uint32_t kept = mantissa >> drop;
    const uint32_t rest = mantissa & ((1u << drop) - 1u);
    const uint32_t tie = 1u << (drop - 1u);
    half = kept + (rest > tie || (rest == tie && (kept & 1u) != 0) ? 1u : 0u);
  }
  return static_cast<uint16_t>(sign | half);
}

[[nodiscard]] constexpr float bfloat_to_float(uint16_t value) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

[[nodiscard]] constexpr uint16_t float_to_bfloat(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// An F64 as an F32 whose last bit is set if anything was lost, so that a second rounding, to 16 bits, ends where a
/// single one would (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding
/// to odd", 2008).
[[nodiscard]] constexpr float round_to_odd(double value) noexcept {
  const float near = static_cast<float>(value);
  const double back = static_cast<double>(near);
  if (back == value || value != value) return near;
  const bool beyond = (back < 0 ? -back : back) > (value < 0 ? -value : value);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(near) - (beyond ? 1u : 0u)) | 1u);
}

[[nodiscard]] constexpr uint16_t double_to_half(double value) noexcept { return float_to_half(round_to_odd(value)); }
[[nodiscard]] constexpr uint16_t double_to_bfloat(double value) noexcept { return float_to_bfloat(round_to_odd(value)); }

}  // namespace ddp
