// What a loop must know of an element type: how it lies in memory (Raw), what it is added in (Acc), how the two become each other, and
// how a sum becomes a mean. Lanes is the number of elements in one vector. Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/kernels.hpp"
#include "device/cpu/vectors.hpp"

namespace ddp::cpu {
namespace {

/// F32 or F64.
template <class F, class I, int LaneCount>
struct FloatElement {
  static constexpr int kLanes = LaneCount;
  static constexpr int kSize = sizeof(F);
  static constexpr int kAccSize = sizeof(F);
  using Scalar = F;
  static constexpr int kSumVector = kLanes * static_cast<int>(sizeof(F)) / 8;  // lanes of as wide a vector of F64
  using Raw = Vec<F, kLanes>;
  using Acc = Vec<F, kLanes>;
  using Bits = Vec<I, kLanes>;

  [[gnu::always_inline]] static Acc widen(Raw raw) noexcept { return raw; }
  [[gnu::always_inline]] static Raw narrow(Acc acc) noexcept { return acc; }

  [[gnu::always_inline]] static Acc add(Acc a, Acc b) noexcept { return a + b; }
  /// Equal numbers have equal bits, but for the zeros: there `or` yields -0 and `and` yields +0.
  [[gnu::always_inline]] static Acc min(Acc a, Acc b) noexcept {
    const Acc less = a < b ? a : b;  // b when unordered
    const Acc ordered = a == b ? as<Acc>(as<Bits>(a) | as<Bits>(b)) : less;
    return a != a ? a : ordered;
  }
  [[gnu::always_inline]] static Acc max(Acc a, Acc b) noexcept {
    const Acc more = a > b ? a : b;
    const Acc ordered = a == b ? as<Acc>(as<Bits>(a) & as<Bits>(b)) : more;
    return a != a ? a : ordered;
  }

  struct Mean {
    F operand;
    bool divide;
  };
  [[gnu::always_inline]] static Mean mean_of(const Finish& f) noexcept {
    return {f.divide ? static_cast<F>(f.divisor) : static_cast<F>(f.factor), f.divide};
  }
  /// Machines and compilers choose different payloads and signs for NaN; one pattern keeps results equal to the bit.
  [[gnu::always_inline]] static Acc finish(Acc sum, const Mean& m) noexcept {
    const Acc mean = m.divide ? sum / m.operand : sum * m.operand;
    return mean == mean ? mean : Acc{} + static_cast<F>(__builtin_nan(""));
  }
};

template <int LaneCount>
using F32 = FloatElement<float, uint32_t, LaneCount>;
template <int LaneCount>
using F64 = FloatElement<double, uint64_t, LaneCount>;

/// A 16-bit float that is added in F32.
template <class Isa, int LaneCount>
struct F16 : F32<LaneCount> {
  static constexpr int kSize = 2;
  using Raw = Vec<uint16_t, LaneCount>;
  using Acc = Vec<float, LaneCount>;
  [[gnu::always_inline]] static Acc widen(Raw raw) noexcept { return Isa::widen_half(raw); }
  [[gnu::always_inline]] static Raw narrow(Acc acc) noexcept { return Isa::narrow_half(acc); }
};
template <int LaneCount>
struct BF16 : F32<LaneCount> {
  static constexpr int kSize = 2;
  using Raw = Vec<uint16_t, LaneCount>;
  using Acc = Vec<float, LaneCount>;
  [[gnu::always_inline]] static Acc widen(Raw raw) noexcept { return bfloat_to_float<LaneCount>(raw); }
  [[gnu::always_inline]] static Raw narrow(Acc acc) noexcept { return float_to_bfloat<LaneCount>(acc); }
};

/// Sums of whole numbers are kept in U, the unsigned type of their size, where they wrap; order and division are those of S.
template <class S, class U, int LaneCount>
struct IntElement {
  static constexpr int kLanes = LaneCount;
  static constexpr int kSize = sizeof(S);
  static constexpr int kAccSize = sizeof(S);
  using Raw = Vec<U, kLanes>;
  using Acc = Vec<U, kLanes>;
  using Ordered = Vec<S, kLanes>;

  [[gnu::always_inline]] static Acc widen(Raw raw) noexcept { return raw; }
  [[gnu::always_inline]] static Raw narrow(Acc acc) noexcept { return acc; }
  [[gnu::always_inline]] static Acc add(Acc a, Acc b) noexcept { return a + b; }
  [[gnu::always_inline]] static Acc min(Acc a, Acc b) noexcept { return as<Ordered>(a) < as<Ordered>(b) ? a : b; }
  [[gnu::always_inline]] static Acc max(Acc a, Acc b) noexcept { return as<Ordered>(a) > as<Ordered>(b) ? a : b; }

  using Mean = Finish;
  [[gnu::always_inline]] static Mean mean_of(const Finish& f) noexcept { return f; }
  [[gnu::always_inline]] static Acc finish(Acc sum, const Mean& f) noexcept {
    if (!f.divide) return sum;
    S element[kLanes];
    __builtin_memcpy(element, &sum, sizeof sum);
    for (int k = 0; k < kLanes; ++k) element[k] = static_cast<S>(static_cast<int64_t>(element[k]) / f.divisor);
    __builtin_memcpy(&sum, element, sizeof sum);
    return sum;
  }
};

struct Add {
  template <class E>
  [[gnu::always_inline]] static typename E::Acc apply(typename E::Acc a, typename E::Acc b) noexcept {
    return E::add(a, b);
  }
};
struct Min {
  template <class E>
  [[gnu::always_inline]] static typename E::Acc apply(typename E::Acc a, typename E::Acc b) noexcept {
    return E::min(a, b);
  }
};
struct Max {
  template <class E>
  [[gnu::always_inline]] static typename E::Acc apply(typename E::Acc a, typename E::Acc b) noexcept {
    return E::max(a, b);
  }
};

}  // namespace
}  // namespace ddp::cpu
