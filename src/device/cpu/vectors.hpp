// Vectors of a chosen width in the compiler's own notation (GCC and Clang), so that one text serves every instruction set.
//
// Everything is in an anonymous namespace on purpose: these files are compiled with different flags, and no copy of a function may be
// shared between them (kernels.hpp says why). For the same reason only headers without code of their own are included here.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>  // integer_sequence, a type without code

namespace ddp::cpu {
namespace {

using Byte = unsigned char;

template <class E, int Lanes>
struct VectorOf {
  typedef E type __attribute__((vector_size(sizeof(E) * Lanes)));
};
template <class E, int Lanes>
using Vec = typename VectorOf<E, Lanes>::type;

template <class V>
[[gnu::always_inline]] inline V get(const Byte* from) noexcept {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

/// Out of line: with a length below one vector the compiler would unfold every copy into a ladder of moves.
[[gnu::noinline, maybe_unused]] void copy_some(void* to, const void* from, int64_t bytes) noexcept {
  __builtin_memcpy(to, from, static_cast<uint64_t>(bytes));
}

/// The first `bytes` bytes, zeros behind them.
template <class V>
[[gnu::always_inline]] inline V get_some(const Byte* from, int64_t bytes) noexcept {
  V value{};
  copy_some(&value, from, bytes);
  return value;
}

template <class V>
[[gnu::always_inline]] inline void put(Byte* to, V value) noexcept {
  __builtin_memcpy(to, &value, sizeof value);
}

template <class V>
[[gnu::always_inline]] inline void put_some(Byte* to, V value, int64_t bytes) noexcept {
  copy_some(to, &value, bytes);
}

/// The same bits as another type.
template <class To, class From>
[[gnu::always_inline]] inline To as(From value) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

/// binary16 to F32 in integers and one exact multiplication; a NaN keeps its payload and becomes quiet.
template <int Lanes>
[[gnu::always_inline]] inline Vec<float, Lanes> half_to_float(Vec<uint16_t, Lanes> half) noexcept {
  using Bits = Vec<uint32_t, Lanes>;
  const Bits wide = __builtin_convertvector(half, Bits);
  const Bits magnitude = wide & 0x7fffu;
  // The exponent is re-based by the product, which also normalises subnormal numbers.
  Bits bits = as<Bits>(as<Vec<float, Lanes>>(magnitude << 13) * 0x1p112f);
  bits |= as<Bits>(magnitude >= 0x7c00u) & 0x7f800000u;
  bits |= as<Bits>(magnitude > 0x7c00u) & 0x00400000u;
  return as<Vec<float, Lanes>>(bits | (wide & 0x8000u) << 16);
}

/// F32 to binary16, round to nearest even; a NaN keeps the top of its payload and becomes quiet.
template <int Lanes>
[[gnu::always_inline]] inline Vec<uint16_t, Lanes> float_to_half(Vec<float, Lanes> value) noexcept {
  using Bits = Vec<uint32_t, Lanes>;
  const Bits bits = as<Bits>(value);
  const Bits magnitude = bits & 0x7fffffffu;
  const Bits normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // The unit of 0.5f in F32 is the unit of binary16's subnormal numbers, so the addition rounds as wanted.
  const Bits subnormal = as<Bits>(as<Vec<float, Lanes>>(magnitude) + 0.5f) - 0x3f000000u;
  const Bits nan = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  Bits half = as<Bits>(magnitude < 0x38800000u) ? subnormal : normal;
  half = as<Bits>(magnitude >= 0x47800000u) ? Bits{} + 0x7c00u : half;
  half = as<Bits>(magnitude > 0x7f800000u) ? nan : half;
  return __builtin_convertvector(half | (bits >> 16 & 0x8000u), Vec<uint16_t, Lanes>);
}

template <int Lanes>
[[gnu::always_inline]] inline Vec<float, Lanes> bfloat_to_float(Vec<uint16_t, Lanes> value) noexcept {
  return as<Vec<float, Lanes>>(__builtin_convertvector(value, Vec<uint32_t, Lanes>) << 16);
}

/// F32 to bfloat16, round to nearest even; a NaN keeps the top of its payload and becomes quiet.
template <int Lanes>
[[gnu::always_inline]] inline Vec<uint16_t, Lanes> float_to_bfloat(Vec<float, Lanes> value) noexcept {
  using Bits = Vec<uint32_t, Lanes>;
  const Bits bits = as<Bits>(value);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Bits nan = bits >> 16 | 0x40u;
  return __builtin_convertvector(as<Bits>((bits & 0x7fffffffu) > 0x7f800000u) ? nan : rounded, Vec<uint16_t, Lanes>);
}

}  // namespace
}  // namespace ddp::cpu
