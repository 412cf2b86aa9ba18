// SPDX-License-Identifier: Apache-2.0
// The loops of a sum whose terms have 16 bits under way (reduce.hpp, "Two bytes on the wire"): Short is the 16-bit element,
// Wide the F32 element with as many lanes. Counts are multiples of kGroup. Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/fold.hpp"

namespace ddp::cpu {
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
}  // namespace ddp::cpu
