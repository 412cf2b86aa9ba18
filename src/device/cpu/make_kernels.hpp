// SPDX-License-Identifier: Apache-2.0
// The table of an instruction set, from a class Isa (isa_*.hpp): name, kWords (32-bit lanes of a vector) and conversions.
// Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/array_loops.hpp"
#include "device/cpu/fold.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/vectors.hpp"

namespace ddp::cpu {

// The loops of a sum whose terms have 16 bits under way (reduce.hpp, "Two bytes on the wire"): Short is the 16-bit element,
// Wide the F32 element with as many lanes. Counts are multiples of kGroup. Anonymous namespace: see vectors.hpp.
namespace {

/// What one rank adds.
template <class Wide, class Short, bool Divide>
[[gnu::always_inline]] inline typename Short::Acc term_of(typename Wide::Acc value, float weight,
                                                          typename Wide::Mean mean) noexcept {
  return Short::rounded_float(Wide::template finish<Divide>(value * weight, mean));
}

/// a + b in F32, rounded once.
template <class Wide, class Short>
[[gnu::always_inline]] inline typename Short::Acc rounded_sum(typename Short::Acc a, typename Short::Acc b) noexcept {
  return Short::rounded_float(Wide::template finish<false>(a + b, 1.0F));
}

/// Elements that become terms when they are loaded; nodes are rounded.
template <class Wide, class Short, int N, bool Divide>
struct Terms {
  using Node = typename Short::Acc;  // a number that Short holds
  static constexpr int kLanes = Wide::kLanes;
  static constexpr int kNodeSize = Short::kSize;
  const Byte* at[N];
  float weight[N];
  typename Wide::Mean mean;

  template <int... K>
  [[gnu::always_inline]] static Terms of(const void* const* in, const Finish& finish,
                                         std::integer_sequence<int, K...>) noexcept {
    return {{static_cast<const Byte*>(in[K])...},
            {(finish.weights != nullptr ? static_cast<float>(finish.weights[K]) : 1.0F)...},
            Wide::mean_of(finish)};
  }
  [[gnu::always_inline]] Node leaf(int k, int64_t i) const noexcept {
    return term_of<Wide, Short, Divide>(get<typename Wide::Raw>(at[k] + i * Wide::kSize), weight[k], mean);
  }
  [[gnu::always_inline]] static Node join(Node a, Node b) noexcept { return rounded_sum<Wide, Short>(a, b); }
  [[gnu::always_inline]] static Node read(const Byte* node) noexcept { return Short::widen(get<typename Short::Raw>(node)); }
  [[gnu::always_inline]] static typename Short::Raw stored(Node node) noexcept { return Short::narrow_exact(node); }
};

/// Terms that were rounded already.
template <class Wide, class Short, int N>
struct PackedTerms {
  using Node = typename Short::Acc;  // a number that Short holds
  static constexpr int kLanes = Wide::kLanes;
  static constexpr int kNodeSize = Short::kSize;
  const Byte* at[N];

  template <int... K>
  [[gnu::always_inline]] static PackedTerms of(const void* const* in, const Finish&,
                                               std::integer_sequence<int, K...>) noexcept {
    return {{static_cast<const Byte*>(in[K])...}};
  }
  [[gnu::always_inline]] Node leaf(int k, int64_t i) const noexcept {
    return Short::widen(get<typename Short::Raw>(at[k] + i * Short::kSize));
  }
  [[gnu::always_inline]] static Node join(Node a, Node b) noexcept { return rounded_sum<Wide, Short>(a, b); }
  [[gnu::always_inline]] static Node read(const Byte* node) noexcept { return Short::widen(get<typename Short::Raw>(node)); }
  [[gnu::always_inline]] static typename Short::Raw stored(Node node) noexcept { return Short::narrow_exact(node); }
};

}  // namespace

// The two loops of low_rank.cpp. Always 16 lanes, on every instruction set: the width is part of the order of sums.
// Anonymous namespace: see vectors.hpp.
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

namespace {

template <class E, int... N>
constexpr void fill_folds(Kernels& table, ddp_dtype dtype, std::integer_sequence<int, N...>) noexcept {
  ((table.to_one[dtype][N + 1][0] = &fold_to_one<E, Inputs<E, Add, N + 1>, N + 1, false>), ...);
  ((table.to_one[dtype][N + 1][1] = &fold_to_one<E, Inputs<E, Add, N + 1>, N + 1, true>), ...);
  ((table.in_place[dtype][N + 1][0] = &fold_in_place<E, Inputs<E, Add, N + 1>, N + 1, false>), ...);
  ((table.in_place[dtype][N + 1][1] = &fold_in_place<E, Inputs<E, Add, N + 1>, N + 1, true>), ...);
  ((table.weighted_to_one[dtype][N + 1] = &fold_to_one<E, WeightedInputs<E, N + 1>, N + 1, true>), ...);
  ((table.weighted_in_place[dtype][N + 1] = &fold_in_place<E, WeightedInputs<E, N + 1>, N + 1, true>), ...);
}

template <class E, class Op>
struct Plain {
  template <int N>
  using Leaves = Inputs<E, Op, N>;
};
template <class E>
struct Weighted {
  template <int N>
  using Leaves = WeightedInputs<E, N>;
};
template <class Wide, class Short, bool Divide>
struct ToTerms {
  template <int N>
  using Leaves = Terms<Wide, Short, N, Divide>;
};
template <class Wide, class Short>
struct Packed {
  template <int N>
  using Leaves = PackedTerms<Wide, Short, N>;
};

template <class Kind, int... W>
constexpr NodeKernels nodes(std::integer_sequence<int, W...>) noexcept {
  return {{&fold_node<typename Kind::template Leaves<1 << W>, 1 << W, false>...},
          {&fold_node<typename Kind::template Leaves<1 << W>, 1 << W, true>...}};
}

template <class E>
constexpr void fill_nodes(Kernels& table, ddp_dtype dtype) noexcept {
  table.nodes[dtype][kAdd] = nodes<Plain<E, Add>>(kUpTo<kNodeWidths>);
  table.nodes[dtype][kMin] = nodes<Plain<E, Min>>(kUpTo<kNodeWidths>);
  table.nodes[dtype][kMax] = nodes<Plain<E, Max>>(kUpTo<kNodeWidths>);
  table.nodes[dtype][kMultiply] = nodes<Plain<E, Multiply>>(kUpTo<kNodeWidths>);
  table.finish[dtype][0] = &fold_finish<E, false>;
  table.finish[dtype][1] = &fold_finish<E, true>;
}

/// B is the element by its bits.
template <class Isa, class E, class B>
constexpr void fill_float(Kernels& table, ddp_dtype dtype) noexcept {
  fill_folds<E>(table, dtype, kUpTo<kMaxFold>);
  fill_nodes<E>(table, dtype);
  table.weighted[dtype] = nodes<Weighted<E>>(kUpTo<kNodeWidths>);
  table.array[dtype] = {&scale_loop<E>,   &limit_loop<E>,    &sum_loop<Isa, E, Magnitude>, &sum_loop<Isa, E, Square>,
                        &largest_loop<B>, &nonfinite_loop<B>};
}

template <class Wide, class Short>
constexpr WireKernels wire_kernels() noexcept {
  return {{nodes<ToTerms<Wide, Short, false>>(kUpTo<kNodeWidths>), nodes<ToTerms<Wide, Short, true>>(kUpTo<kNodeWidths>)},
          nodes<Packed<Wide, Short>>(kUpTo<kNodeWidths>)};
}

template <class Isa>
constexpr Kernels make_kernels() noexcept {
  constexpr int kWords = Isa::kWords;
  using Single = F32<kWords>;
  using Half = F16<Isa, kWords>;
  using Brain = BF16<Isa, kWords>;
  Kernels table{};
  table.name = Isa::kName;
  fill_float<Isa, Single, BitElement<uint32_t, kWords, 0x7f800000u>>(table, DDP_F32);
  fill_float<Isa, F64<kWords / 2>, BitElement<uint64_t, kWords / 2, 0x7ff0000000000000u>>(table, DDP_F64);
  fill_float<Isa, Half, BitElement<uint16_t, kWords * 2, 0x7c00u>>(table, DDP_F16);
  fill_float<Isa, Brain, BitElement<uint16_t, kWords * 2, 0x7f80u>>(table, DDP_BF16);
  fill_nodes<IntElement<int32_t, uint32_t, kWords>>(table, DDP_I32);
  fill_nodes<IntElement<int64_t, uint64_t, kWords / 2>>(table, DDP_I64);
  fill_nodes<IntElement<uint8_t, uint8_t, kWords * 4>>(table, DDP_U8);
  table.vector[DDP_F32] = {&dot_loop<float, kWords>, &add_scaled_loop<float, kWords>};
  table.vector[DDP_F64] = {&dot_loop<double, kWords / 2>, &add_scaled_loop<double, kWords / 2>};
  table.wire[0] = wire_kernels<Single, Half>();
  table.wire[1] = wire_kernels<Single, Brain>();
  table.convert[DDP_F32][DDP_F16] = &convert_loop<Single, Half>;
  table.convert[DDP_F32][DDP_BF16] = &convert_loop<Single, Brain>;
  table.convert[DDP_F16][DDP_F32] = &convert_loop<Half, Single>;
  table.convert[DDP_F16][DDP_BF16] = &convert_loop<Half, Brain>;
  table.convert[DDP_BF16][DDP_F32] = &convert_loop<Brain, Single>;
  table.convert[DDP_BF16][DDP_F16] = &convert_loop<Brain, Half>;
  table.convert[DDP_F32][DDP_F64] = &convert_to_double<Isa, Single>;
  table.convert[DDP_F16][DDP_F64] = &convert_to_double<Isa, Half>;
  table.convert[DDP_BF16][DDP_F64] = &convert_to_double<Isa, Brain>;
  table.convert[DDP_F64][DDP_F32] = &convert_loop<DoubleAsFloat<Isa>, F32<kWords / 2>>;
  return table;
}

}  // namespace
}  // namespace ddp::cpu
