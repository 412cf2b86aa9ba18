// SPDX-License-Identifier: Apache-2.0
// The two loops of low_rank.cpp. Always 16 lanes, on every instruction set: the width is part of the order of sums.
// Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/fold.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/vectors.hpp"

namespace ddp::cpu {
namespace {

inline constexpr int kDotLanes = 16;

/// In 16 partial sums, which are added as a tree. U counts the vectors that hold them.
template <class F, int Lanes, int... U>
[[gnu::always_inline]] inline double dot_of(const void* a, const void* b, int64_t count,
                                            std::integer_sequence<int, U...>) noexcept {
  using V = Vec<F, Lanes>;
  constexpr int64_t kSize = sizeof(F);
  const Byte* const first = static_cast<const Byte*>(a);
  const Byte* const second = static_cast<const Byte*>(b);
  const int64_t whole = count / kDotLanes * kDotLanes;
  V sums[sizeof...(U)] = {};
  for (int64_t i = 0; i < whole; i += kDotLanes)
    // NOLINTNEXTLINE(bugprone-implicit-widening-of-multiplication-result): a few lanes
    ((sums[U] += get<V>(first + (i + U * Lanes) * kSize) * get<V>(second + (i + U * Lanes) * kSize)), ...);
  F lane[kDotLanes];
  __builtin_memcpy(lane, sums, sizeof lane);
  for (int64_t i = whole; i < count; ++i) lane[i - whole] += static_cast<const F*>(a)[i] * static_cast<const F*>(b)[i];
  for (int half = kDotLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
  return static_cast<double>(lane[0]);
}

template <class F, int Lanes>
double dot_loop(const void* a, const void* b, int64_t count) noexcept {
  return dot_of<F, Lanes>(a, b, count, kUpTo<kDotLanes / Lanes>);
}

/// to += from * factor
template <class F, int Lanes>
void add_scaled_loop(void* to, const void* from, double factor, int64_t count) noexcept {
  using V = Vec<F, Lanes>;
  Byte* const target = static_cast<Byte*>(to);
  const Byte* const source = static_cast<const Byte*>(from);
  const F times = static_cast<F>(factor);
  const int64_t whole = count / Lanes * Lanes;
  for (int64_t i = 0; i < whole; i += Lanes) {
    const int64_t at = i * static_cast<int64_t>(sizeof(F));
    put(target + at, get<V>(target + at) + get<V>(source + at) * times);
  }
  for (int64_t i = whole; i < count; ++i) static_cast<F*>(to)[i] += static_cast<const F*>(from)[i] * times;
}

}  // namespace
}  // namespace ddp::cpu
