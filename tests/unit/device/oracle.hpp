// SPDX-License-Identifier: Apache-2.0
// The naive arithmetic that the loops are compared with: one element at a time, conversions by way of frexp and nearbyint.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "ddp/types.h"
#include "support/sum_oracle.hpp"
#include "support/values.hpp"

namespace ddp::test {

inline constexpr const char* kAllSets[] = {"avx512", "avx2", "neon", "portable"};

/// What a 16-bit float with `fraction` bits of fraction and least normal exponent `min_exponent` holds.
inline double decode_small(uint16_t bits, int fraction, int min_exponent) {
  const int exponent_bits = 15 - fraction;
  const int field = bits >> fraction & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << fraction) - 1);
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (field == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (field == 0) return sign * std::ldexp(mantissa, min_exponent - fraction);
  return sign * std::ldexp((1 << fraction) + mantissa, field - 1 + min_exponent - fraction);
}

/// Round to nearest even; NaN becomes the positive quiet NaN without payload.
inline uint16_t encode_small(double value, int fraction, int min_exponent) {
  const int exponent_bits = 15 - fraction;
  const int infinity = ((1 << exponent_bits) - 1) << fraction;
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | 1 << (fraction - 1));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
  int exponent = min_exponent;
  if (magnitude > 0) exponent = std::max(std::ilogb(magnitude), min_exponent);
  const double units = std::nearbyint(std::ldexp(magnitude, fraction - exponent));  // [0, 2^(fraction + 1)]
  const double bits = units + std::ldexp(exponent - min_exponent, fraction);        // a carry moves on into the exponent
  return static_cast<uint16_t>(sign | (bits > infinity ? infinity : static_cast<int>(bits)));
}

inline double decode_half(uint16_t bits) { return decode_small(bits, 10, -14); }
inline double decode_bfloat(uint16_t bits) { return decode_small(bits, 7, -126); }
inline uint16_t encode_half(double value) { return encode_small(value, 10, -14); }
inline uint16_t encode_bfloat(double value) { return encode_small(value, 7, -126); }

template <class T>
T load(const void* base, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}
template <class T>
void store(void* base, int64_t i, T value) {
  std::memcpy(static_cast<char*>(base) + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

template <class T>
T naive_combine(ddp_reduce op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == DDP_MIN || op == DDP_MAX) {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return (op == DDP_MIN) == std::signbit(a) ? a : b;
    } else {
      return a + b;
    }
  } else if (op != DDP_MIN && op != DDP_MAX) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  }
  return op == DDP_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

/// The rule of reduce.hpp for one element; in[k] NULL: does not count. Load and Store convert from and to the accumulator
/// type T.
template <class T, class Load, class Store>
void naive_element(const cpu::ReduceRule& rule, const std::vector<const void*>& in, void* out, int64_t i, Load load_one,
                   Store store_one) {
  size_t first = 0;  // that counts
  while (in[first] == nullptr) ++first;
  const auto leaf = [&](size_t k) -> T {
    if (in[k] != nullptr) return load_one(in[k], i);
    if (rule.op == DDP_MIN || rule.op == DDP_MAX) return load_one(in[first], i);
    return static_cast<T>(-0.0);
  };
  T sum = oracle_tree(0, in.size(), leaf, [&](T a, T b) { return naive_combine<T>(rule.op, a, b); });
  if (rule.op == DDP_AVERAGE) {
    if constexpr (std::is_floating_point_v<T>)
      sum = sum / static_cast<T>(rule.divisor);
    else
      sum = static_cast<T>(static_cast<int64_t>(sum) / rule.divisor);
  }
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(sum)) sum = std::numeric_limits<T>::quiet_NaN();
  store_one(out, i, sum);
}

template <class T>
void naive_plain(const cpu::ReduceRule& rule, const std::vector<const void*>& in, void* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) naive_element<T>(rule, in, out, i, load<T>, store<T>);
}

template <class Decode, class Encode>
void naive_small(const cpu::ReduceRule& rule, const std::vector<const void*>& in, void* out, int64_t count, Decode decode,
                 Encode encode) {
  for (int64_t i = 0; i < count; ++i)
    naive_element<float>(
        rule, in, out, i, [&](const void* base, int64_t j) { return static_cast<float>(decode(load<uint16_t>(base, j))); },
        [&](void* base, int64_t j, float sum) { store<uint16_t>(base, j, encode(sum)); });
}

inline void naive_reduce(const cpu::ReduceRule& rule, const std::vector<const void*>& in, void* out, int64_t count) {
  switch (rule.dtype) {
    case DDP_F32: return naive_plain<float>(rule, in, out, count);
    case DDP_F64: return naive_plain<double>(rule, in, out, count);
    case DDP_F16: return naive_small(rule, in, out, count, decode_half, encode_half);
    case DDP_BF16: return naive_small(rule, in, out, count, decode_bfloat, encode_bfloat);
    case DDP_I32: return naive_plain<int32_t>(rule, in, out, count);
    case DDP_I64: return naive_plain<int64_t>(rule, in, out, count);
    case DDP_U8: return naive_plain<uint8_t>(rule, in, out, count);
    case DDP_C64: return naive_plain<float>(rule, in, out, 2 * count);
    case DDP_C128: return naive_plain<double>(rule, in, out, 2 * count);
  }
}

}  // namespace ddp::test
