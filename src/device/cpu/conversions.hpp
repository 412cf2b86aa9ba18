// SPDX-License-Identifier: Apache-2.0
// Conversions between vectors of element types, in the compiler's notation: what an instruction set uses where it has
// nothing better. W is the number of 32-bit lanes. Anonymous namespace: see vectors.hpp. Source of the binary16 constants:
// IEEE 754-2019, 3.6; the additions that round are explained where they are.
#pragma once

#include "device/cpu/vectors.hpp"

namespace ddp::cpu {
namespace {

template <int W>
struct PlainConversions {
  using Bits = Vec<uint32_t, W>;
  using Float = Vec<float, W>;
  using Short = Vec<uint16_t, W>;

  [[gnu::always_inline]] static Bits widen(Short v) noexcept { return __builtin_convertvector(v, Bits); }
  /// Lanes are below 65536.
  [[gnu::always_inline]] static Short narrow(Bits v) noexcept { return __builtin_convertvector(v, Short); }
  [[gnu::always_inline]] static Vec<double, W / 2> to_double(Vec<float, W / 2> v) noexcept {
    return __builtin_convertvector(v, Vec<double, W / 2>);
  }
  [[gnu::always_inline]] static Vec<float, W / 2> to_float(Vec<double, W / 2> v) noexcept {
    return __builtin_convertvector(v, Vec<float, W / 2>);
  }

  /// In integers and one exact multiplication; a NaN keeps its payload and becomes quiet.
  [[gnu::always_inline]] static Float half_to_float(Short half) noexcept {
    const Bits wide = widen(half);
    const Bits magnitude = wide & 0x7fffu;
    // The exponent is re-based by the product, which also normalises subnormal numbers.
    Bits bits = as<Bits>(as<Float>(magnitude << 13) * 0x1p112f);
    bits |= as<Bits>(magnitude >= 0x7c00u) & 0x7f800000u;
    bits |= as<Bits>(magnitude > 0x7c00u) & 0x00400000u;
    return as<Float>(bits | (wide & 0x8000u) << 16);
  }

  /// Round to nearest even; a NaN keeps the top of its payload and becomes quiet.
  [[gnu::always_inline]] static Short float_to_half(Float value) noexcept {
    const Bits bits = as<Bits>(value);
    const Bits magnitude = bits & 0x7fffffffu;
    const Bits normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    // The unit of 0.5f in F32 is the unit of binary16's subnormal numbers, so the addition rounds as wanted.
    const Bits subnormal = as<Bits>(as<Float>(magnitude) + 0.5f) - 0x3f000000u;
    const Bits nan = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
    Bits half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x47800000u ? Bits{} + 0x7c00u : half;
    half = magnitude > 0x7f800000u ? nan : half;
    return narrow(half | (bits >> 16 & 0x8000u));
  }
};

}  // namespace
}  // namespace ddp::cpu
