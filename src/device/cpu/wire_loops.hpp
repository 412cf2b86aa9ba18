// The loops of a sum whose terms have 16 bits under way (reduce.hpp, "Two bytes on the wire"): Short is the 16-bit element, Wide the F32
// element with as many lanes. Counts are multiples of kGroup. Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/fold.hpp"

namespace ddp::cpu {
namespace {

/// What one rank adds, as it travels.
template <class Wide, class Short, bool Divide>
[[gnu::always_inline]] inline typename Short::Raw term_of(typename Wide::Acc value, float weight, typename Wide::Mean mean) noexcept {
  return Short::narrow_finished(Wide::template finish<Divide>(value * weight, mean));
}

/// a + b in F32, rounded once.
template <class Wide, class Short>
[[gnu::always_inline]] inline typename Short::Raw rounded_sum(typename Short::Raw a, typename Short::Raw b) noexcept {
  return Short::narrow_finished(Wide::template finish<false>(Short::widen(a) + Short::widen(b), 1.0F));
}

template <class Wide, class Short, bool Divide, bool Carry>
void wire_term(const void* carry, const void* in, double weight, void* out, int64_t count, const Finish& finish) noexcept {
  using Raw = typename Short::Raw;
  const auto mean = Wide::mean_of(finish);
  const auto times = static_cast<float>(weight);
  const Byte* const from = static_cast<const Byte*>(in);
  const Byte* const before = static_cast<const Byte*>(carry);
  Byte* const to = static_cast<Byte*>(out);
  each_vector<Wide::kLanes>(
      count,
      [=](int64_t i) {
        const Raw term = term_of<Wide, Short, Divide>(get<typename Wide::Raw>(from + i * Wide::kSize), times, mean);
        if constexpr (Carry)
          return rounded_sum<Wide, Short>(get<Raw>(before + i * Short::kSize), term);
        else
          return term;
      },
      [=](int64_t i, Raw raw) { put(to + i * Short::kSize, raw); }, kUpTo<2>);
}

template <class Wide, class Short>
void wire_add(const void* a, const void* b, void* out, int64_t count) noexcept {
  using Raw = typename Short::Raw;
  const Byte* const first = static_cast<const Byte*>(a);
  const Byte* const second = static_cast<const Byte*>(b);
  Byte* const to = static_cast<Byte*>(out);
  each_vector<Wide::kLanes>(
      count,
      [=](int64_t i) { return rounded_sum<Wide, Short>(get<Raw>(first + i * Short::kSize), get<Raw>(second + i * Short::kSize)); },
      [=](int64_t i, Raw raw) { put(to + i * Short::kSize, raw); }, kUpTo<2>);
}

}  // namespace
}  // namespace ddp::cpu
