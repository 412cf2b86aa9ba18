// SPDX-License-Identifier: Apache-2.0
// The loops over one array: scale, sums of |x| and x^2, largest magnitude, non-finite count, conversion.
//
// A sum is kept in kSumLanes F64 numbers, element i in number i mod kSumLanes, and these are added in a fixed tree: the
// order of the additions does not depend on the vector's width. Magnitudes are compared as integers, where every NaN is
// larger than infinity. Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/elements.hpp"
#include "device/cpu/fold.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

template <class E>
void scale_loop(void* data, int64_t count, double factor) noexcept {
  using Raw = typename E::Raw;
  const auto mean = E::mean_of(Finish{factor, 1.0, false});
  Byte* const at = static_cast<Byte*>(data);
  each_vector<E::kLanes>(
      count,
      [=](int64_t i) { return E::narrow_finished(E::template finish<false>(E::widen(get<Raw>(at + i * E::kSize)), mean)); },
      [=](int64_t i, Raw raw) { put(at + i * E::kSize, raw); }, kUpTo<4>);
}

/// A NaN is above and below nothing, so it stays.
template <class E>
void limit_loop(void* data, int64_t count, double limit) noexcept {
  using Raw = typename E::Raw;
  using Acc = typename E::Acc;
  const Acc high = Acc{} + static_cast<typename E::Scalar>(limit);
  Byte* const at = static_cast<Byte*>(data);
  each_vector<E::kLanes>(
      count,
      [=](int64_t i) {
        Acc x = E::widen(get<Raw>(at + i * E::kSize));
        x = x > high ? high : x;
        x = x < -high ? -high : x;
        return E::narrow(x);
      },
      [=](int64_t i, Raw raw) { put(at + i * E::kSize, raw); }, kUpTo<4>);
}

/// Between types whose accumulators are the same.
template <class From, class To>
void convert_loop(const void* source, void* target, int64_t count) noexcept {
  const Byte* const from = static_cast<const Byte*>(source);
  Byte* const to = static_cast<Byte*>(target);
  each_vector<To::kLanes>(
      count, [=](int64_t i) { return To::narrow(From::widen(get<typename From::Raw>(from + i * From::kSize))); },
      [=](int64_t i, typename To::Raw raw) { put(to + i * To::kSize, raw); }, kUpTo<4>);
}

struct Magnitude {
  template <class V, class I>
  [[gnu::always_inline]] static V of(V x, I bits) noexcept {
    return as<V>(as<I>(x) & bits);
  }
};
struct Square {
  template <class V, class I>
  [[gnu::always_inline]] static V of(V x, I) noexcept {
    return x * x;
  }
};

/// Half H (0 or 1) of a vector of F32, as F64.
template <class Isa, int H, class V>
[[gnu::always_inline]] inline Vec<double, Isa::kWords / 2> half_of(V v) noexcept {
  constexpr int kHalf = Isa::kWords / 2;
  return Isa::to_double(part_of<H * kHalf, Vec<float, kHalf>>(v, kUpTo<kHalf>));
}

/// Adds the terms of one vector of elements to one or two vectors of F64 at `sums`.
template <class Isa, class Term, class V>
[[gnu::always_inline]] inline void add_terms(Vec<double, Isa::kWords / 2>* sums, V x) noexcept {
  using Double = Vec<double, Isa::kWords / 2>;
  using Bits = Vec<uint64_t, Isa::kWords / 2>;
  const Bits magnitude = Bits{} + 0x7fffffffffffffffu;
  if constexpr (std::is_same_v<V, Double>) {
    sums[0] += Term::of(x, magnitude);
  } else {
    sums[0] += Term::of(half_of<Isa, 0>(x), magnitude);
    sums[1] += Term::of(half_of<Isa, 1>(x), magnitude);
  }
}

template <class Isa, class E, class Term, int... U>
[[gnu::always_inline]] inline double sum_over(const Byte* at, int64_t count, std::integer_sequence<int, U...>) noexcept {
  using Raw = typename E::Raw;
  constexpr int kDoubles = Isa::kWords / 2;
  constexpr int kPerVector = E::kLanes / kDoubles;
  Vec<double, kDoubles> sums[kSumLanes / kDoubles] = {};
  static_assert(kGroup % kSumLanes == 0);
  for (int64_t i = 0; i < count; i += kSumLanes)
    (add_terms<Isa, Term>(sums + U * kPerVector, E::widen(get<Raw>(at + (i + U * E::kLanes) * E::kSize))), ...);
  double lane[kSumLanes];
  __builtin_memcpy(lane, sums, sizeof lane);
  for (int width = kSumLanes / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  return lane[0];
}

template <class Isa, class E, class Term>
double sum_loop(const void* data, int64_t count) noexcept {
  return sum_over<Isa, E, Term>(static_cast<const Byte*>(data), count, kUpTo<kSumLanes / E::kLanes>);
}

/// A floating type by its bits alone.
template <class U, int LaneCount, U Infinity>
struct BitElement {
  static constexpr int kLanes = LaneCount;
  static constexpr int kSize = sizeof(U);
  static constexpr U kInfinity = Infinity;
  using Scalar = U;
  using Raw = Vec<U, kLanes>;
  [[gnu::always_inline]] static Raw magnitude(Raw raw) noexcept { return raw & static_cast<U>(static_cast<U>(~U{0}) >> 1); }
  /// Below the sign bit all values are equal in signed and unsigned order; signed comparisons are the cheaper ones.
  using Signed = Vec<std::make_signed_t<U>, kLanes>;
  [[gnu::always_inline]] static Raw larger(Raw a, Raw b) noexcept { return as<Signed>(a) > as<Signed>(b) ? a : b; }
  /// All ones, that is minus one, where a magnitude is infinite or NaN.
  [[gnu::always_inline]] static Raw nonfinite(Raw magnitude) noexcept {
    return as<Raw>(as<Signed>(magnitude) > static_cast<std::make_signed_t<U>>(kInfinity - 1));
  }
};

/// Folds two vectors of state over the array, so that the loop does not wait for itself.
template <class B, class Step>
[[gnu::always_inline]] inline void two_states(const void* data, int64_t count, typename B::Raw& a, typename B::Raw& b,
                                              Step step) noexcept {
  using Raw = typename B::Raw;
  static_assert(kGroup % (2 * B::kLanes) == 0);
  const Byte* const at = static_cast<const Byte*>(data);
  for (int64_t i = 0; i < count; i += 2 * B::kLanes) {
    a = step(a, B::magnitude(get<Raw>(at + i * B::kSize)));
    b = step(b, B::magnitude(get<Raw>(at + (i + B::kLanes) * B::kSize)));
  }
}

template <class B>
uint64_t largest_loop(const void* data, int64_t count) noexcept {
  typename B::Raw a{}, b{};
  two_states<B>(data, count, a, b, [](auto state, auto magnitude) { return B::larger(state, magnitude); });
  a = B::larger(a, b);
  typename B::Scalar most = 0;
  for (int k = 0; k < B::kLanes; ++k) most = a[k] > most ? a[k] : most;
  return most;
}

template <class B>
int64_t nonfinite_loop(const void* data, int64_t count) noexcept {
  typename B::Raw a{}, b{};
  two_states<B>(data, count, a, b, [](auto state, auto magnitude) { return state - B::nonfinite(magnitude); });
  a += b;
  int64_t sum = 0;
  for (int k = 0; k < B::kLanes; ++k) sum += static_cast<int64_t>(a[k]);
  return sum;
}

template <class Isa, class From>
void convert_to_double(const void* source, void* target, int64_t count) noexcept {
  constexpr int kDoubles = Isa::kWords / 2;
  const Byte* const from = static_cast<const Byte*>(source);
  Byte* const to = static_cast<Byte*>(target);
  for (int64_t i = 0; i < count; i += From::kLanes) {
    const auto wide = From::widen(get<typename From::Raw>(from + i * From::kSize));
    put(to + i * 8, half_of<Isa, 0>(wide));
    put(to + (i + kDoubles) * 8, half_of<Isa, 1>(wide));
  }
}

/// F64 as the source of a convert_loop to F32.
template <class Isa>
struct DoubleAsFloat {
  static constexpr int kSize = 8;
  using Raw = Vec<double, Isa::kWords / 2>;
  using Mean = float;
  [[gnu::always_inline]] static Vec<float, Isa::kWords / 2> widen(Raw raw) noexcept { return Isa::to_float(raw); }
};

}  // namespace
}  // namespace ddp::cpu
