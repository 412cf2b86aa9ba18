// The loops over one array: scale, sums of |x| and x^2, largest magnitude, non-finite count, conversion.
//
// A sum is kept in kSumLanes F64 numbers, element i in number i mod kSumLanes, and these are added in a fixed tree: the order of the
// additions does not depend on the vector's width. Magnitudes are compared as integers, where every NaN is larger than infinity.
// Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/elements.hpp"
#include "device/cpu/fold.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

template <int N>
constexpr auto kUpTo = std::make_integer_sequence<int, N>{};

template <class E>
void scale_loop(void* data, int64_t count, double factor) noexcept {
  using Raw = typename E::Raw;
  const auto mean = E::mean_of(Finish{factor, 1, false});
  Byte* const at = static_cast<Byte*>(data);
  walk<E, 4>(
      at, E::kSize, count,
      [&](int64_t i) {
        unrolled<E, 4>(
            i, [&](int64_t j) { return E::narrow(E::finish(E::widen(get<Raw>(at + j * E::kSize)), mean)); },
            [&](int64_t j, Raw raw) { put(at + j * E::kSize, raw); }, kUpTo<4>);
      },
      [&](int64_t i, int64_t n) {
        const Raw raw = get_some<Raw>(at + i * E::kSize, n * E::kSize);
        put_some(at + i * E::kSize, E::narrow(E::finish(E::widen(raw), mean)), n * E::kSize);
      });
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
template <int H, int Lanes, int... K>
[[gnu::always_inline]] inline Vec<double, Lanes / 2> half_of(Vec<float, Lanes> v, std::integer_sequence<int, K...>) noexcept {
  return __builtin_convertvector(__builtin_shufflevector(v, v, (H * Lanes / 2 + K)...), Vec<double, Lanes / 2>);
}

/// Adds the terms of one vector of elements to the lanes at `sums`.
template <class E, class Term>
[[gnu::always_inline]] inline void add_terms(Vec<double, E::kSumVector>* sums, typename E::Acc x) noexcept {
  using V = Vec<double, E::kSumVector>;
  using I = Vec<uint64_t, E::kSumVector>;
  const I magnitude = I{} + 0x7fffffffffffffffu;
  if constexpr (sizeof(typename E::Scalar) == 8) {
    sums[0] += Term::of(as<V>(x), magnitude);
  } else {
    sums[0] += Term::of(half_of<0, E::kLanes>(x, kUpTo<E::kLanes / 2>), magnitude);
    sums[1] += Term::of(half_of<1, E::kLanes>(x, kUpTo<E::kLanes / 2>), magnitude);
  }
}

template <class E, class Term, int... U>
[[gnu::always_inline]] inline double sum_over(const Byte* at, int64_t count, std::integer_sequence<int, U...>) noexcept {
  using V = Vec<double, E::kSumVector>;
  using Raw = typename E::Raw;
  constexpr int kPerVector = E::kLanes / E::kSumVector;
  V sums[kSumLanes / E::kSumVector] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
    (add_terms<E, Term>(sums + U * kPerVector, E::widen(get<Raw>(at + (i + U * E::kLanes) * E::kSize))), ...);
  if (i < count) {  // the rest, filled up with zeros, which add nothing
    Byte rest[kSumLanes * E::kSize] = {};
    copy_some(rest, at + i * E::kSize, (count - i) * E::kSize);
    (add_terms<E, Term>(sums + U * kPerVector, E::widen(get<Raw>(rest + U * E::kLanes * E::kSize))), ...);
  }
  double lane[kSumLanes];
  __builtin_memcpy(lane, sums, sizeof lane);
  for (int width = kSumLanes / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  return lane[0];
}

template <class E, class Term>
double sum_loop(const void* data, int64_t count) noexcept {
  return sum_over<E, Term>(static_cast<const Byte*>(data), count, kUpTo<kSumLanes / E::kLanes>);
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

/// Folds a vector of state over the array; two states, so that the loop does not wait for itself.
template <class B, class Step>
[[gnu::always_inline]] inline void two_states(const void* data, int64_t count, typename B::Raw& a, typename B::Raw& b,
                                              Step step) noexcept {
  using Raw = typename B::Raw;
  const Byte* const at = static_cast<const Byte*>(data);
  int64_t i = 0;
  for (; i + 2 * B::kLanes <= count; i += 2 * B::kLanes) {
    a = step(a, B::magnitude(get<Raw>(at + i * B::kSize)));
    b = step(b, B::magnitude(get<Raw>(at + (i + B::kLanes) * B::kSize)));
  }
  for (; i < count; i += B::kLanes) {
    const int64_t n = count - i < B::kLanes ? count - i : B::kLanes;
    a = step(a, B::magnitude(get_some<Raw>(at + i * B::kSize, n * B::kSize)));
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

/// Between types that are added in F32.
template <class From, class To>
void convert_loop(const void* source, void* target, int64_t count) noexcept {
  using Raw = typename From::Raw;
  const Byte* const from = static_cast<const Byte*>(source);
  Byte* const to = static_cast<Byte*>(target);
  walk<To, 4>(
      to, To::kSize, count,
      [&](int64_t i) {
        unrolled<To, 4>(
            i, [&](int64_t j) { return To::narrow(From::widen(get<Raw>(from + j * From::kSize))); },
            [&](int64_t j, typename To::Raw raw) { put(to + j * To::kSize, raw); }, kUpTo<4>);
      },
      [&](int64_t i, int64_t n) {
        const Raw raw = get_some<Raw>(from + i * From::kSize, n * From::kSize);
        put_some(to + i * To::kSize, To::narrow(From::widen(raw)), n * To::kSize);
      });
}

template <class From>
void convert_to_double(const void* source, void* target, int64_t count) noexcept {
  using Raw = typename From::Raw;
  using Wide = Vec<double, From::kLanes / 2>;
  constexpr auto kHalf = kUpTo<From::kLanes / 2>;
  const Byte* const from = static_cast<const Byte*>(source);
  Byte* const to = static_cast<Byte*>(target);
  for (int64_t i = 0; i < count; i += From::kLanes) {
    const int64_t n = count - i < From::kLanes ? count - i : From::kLanes;
    const bool full = n == From::kLanes;
    const Raw raw = full ? get<Raw>(from + i * From::kSize) : get_some<Raw>(from + i * From::kSize, n * From::kSize);
    const Wide wide[2] = {half_of<0, From::kLanes>(From::widen(raw), kHalf), half_of<1, From::kLanes>(From::widen(raw), kHalf)};
    if (full) __builtin_memcpy(to + i * 8, wide, sizeof wide);
    else copy_some(to + i * 8, wide, n * 8);
  }
}

template <int Lanes>
void convert_double_to_float(const void* source, void* target, int64_t count) noexcept {
  using Raw = Vec<double, Lanes>;
  const Byte* const from = static_cast<const Byte*>(source);
  Byte* const to = static_cast<Byte*>(target);
  walk<F64<Lanes>, 1>(
      to, 4, count,
      [&](int64_t i) { put(to + i * 4, __builtin_convertvector(get<Raw>(from + i * 8), Vec<float, Lanes>)); },
      [&](int64_t i, int64_t n) {
        put_some(to + i * 4, __builtin_convertvector(get_some<Raw>(from + i * 8, n * 8), Vec<float, Lanes>), n * 4);
      });
}

template <class E, class B>
constexpr ArrayKernels array_kernels() noexcept {
  return {&scale_loop<E>, &sum_loop<E, Magnitude>, &sum_loop<E, Square>, &largest_loop<B>, &nonfinite_loop<B>};
}

template <class Isa>
constexpr void fill_arrays(Kernels& table) noexcept {
  constexpr int kWords = Isa::kVectorBytes / 4;
  using Single = F32<kWords>;
  using Half = F16<Isa, kWords>;
  using Brain = BF16<kWords>;
  table.array[DDP_F32] = array_kernels<Single, BitElement<uint32_t, kWords, 0x7f800000u>>();
  table.array[DDP_F64] = array_kernels<F64<kWords / 2>, BitElement<uint64_t, kWords / 2, 0x7ff0000000000000u>>();
  table.array[DDP_F16] = array_kernels<Half, BitElement<uint16_t, kWords * 2, 0x7c00u>>();
  table.array[DDP_BF16] = array_kernels<Brain, BitElement<uint16_t, kWords * 2, 0x7f80u>>();
  table.convert[DDP_F32][DDP_F16] = &convert_loop<Single, Half>;
  table.convert[DDP_F32][DDP_BF16] = &convert_loop<Single, Brain>;
  table.convert[DDP_F16][DDP_F32] = &convert_loop<Half, Single>;
  table.convert[DDP_F16][DDP_BF16] = &convert_loop<Half, Brain>;
  table.convert[DDP_BF16][DDP_F32] = &convert_loop<Brain, Single>;
  table.convert[DDP_BF16][DDP_F16] = &convert_loop<Brain, Half>;
  table.convert[DDP_F32][DDP_F64] = &convert_to_double<Single>;
  table.convert[DDP_F16][DDP_F64] = &convert_to_double<Half>;
  table.convert[DDP_BF16][DDP_F64] = &convert_to_double<Brain>;
  table.convert[DDP_F64][DDP_F32] = &convert_double_to_float<kWords / 2>;
}

}  // namespace
}  // namespace ddp::cpu
