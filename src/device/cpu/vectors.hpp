// SPDX-License-Identifier: Apache-2.0
// Vectors of a chosen width in the compiler's own notation (GCC and Clang), so that one text serves every instruction set.
//
// Everything is in an anonymous namespace on purpose: these files are compiled with different flags, and no copy of a
// function may be shared between them (kernels.hpp explains why). For the same reason only headers without code of their own
// are included here.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>  // integer_sequence, a type without code

namespace ddp::cpu {
namespace {

using Byte = unsigned char;

template <class E, int Lanes>
struct VectorOf {
  typedef E type __attribute__((vector_size(sizeof(E) * Lanes)));  // NOLINT(modernize-use-using)
};
template <class E, int Lanes>
using Vec = typename VectorOf<E, Lanes>::type;

template <class V>
[[gnu::always_inline]] inline V get(const Byte* from) noexcept {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

/// A copy of a length that is not known. Out of line: with a length below one vector the compiler would unfold every copy
/// into a ladder of moves.
// NOLINTNEXTLINE(misc-definitions-in-headers): one for each set of instructions
[[gnu::noinline, maybe_unused]] void copy_some(void* to, const void* from, int64_t bytes) noexcept {
  __builtin_memcpy(to, from, static_cast<uint64_t>(bytes));
}

template <class V>
[[gnu::always_inline]] inline void put(Byte* to, V value) noexcept {
  __builtin_memcpy(to, &value, sizeof value);
}

/// The same bits as another type.
template <class To, class From>
[[gnu::always_inline]] inline To as(From value) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

/// Lanes [First, First + Lanes) of a vector.
template <int First, class To, class From, int... K>
[[gnu::always_inline]] inline To part_of(From v, std::integer_sequence<int, K...>) noexcept {
  return __builtin_shufflevector(v, v, (First + K)...);
}

}  // namespace
}  // namespace ddp::cpu
