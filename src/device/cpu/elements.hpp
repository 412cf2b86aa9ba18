// SPDX-License-Identifier: Apache-2.0
// What a loop must know of an element type: its type in memory (Raw), what it is added in (Acc), how the two become each
// other, and how a sum becomes a mean. Lanes is the number of elements in one vector. Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/kernels.hpp"
#include "device/cpu/vectors.hpp"

namespace ddp::cpu {
namespace {

/// F32 or F64.
template <class F, class I, int Lanes>
struct FloatElement {
  static constexpr int kLanes = Lanes;
  static constexpr int kSize = sizeof(F);
  static constexpr int kAccSize = sizeof(F);
  using Scalar = F;
  using Raw = Vec<F, kLanes>;
  using Acc = Vec<F, kLanes>;
  using Bits = Vec<I, kLanes>;

  [[gnu::always_inline]] static Acc widen(Raw raw) noexcept { return raw; }
  [[gnu::always_inline]] static Raw narrow(Acc acc) noexcept { return acc; }
  /// narrow() for what finish() returned.
  [[gnu::always_inline]] static Raw narrow_finished(Acc acc) noexcept { return acc; }

  [[gnu::always_inline]] static Acc add(Acc a, Acc b) noexcept { return a + b; }
  [[gnu::always_inline]] static Acc times(Acc a, F weight) noexcept { return a * weight; }
  [[gnu::always_inline]] static Acc multiply(Acc a, Acc b) noexcept { return a * b; }
  /// Equal numbers have equal bits, except zeros: there `or` yields -0 and `and` yields +0.
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

  using Mean = F;  // the divisor or the factor
  [[gnu::always_inline]] static Mean mean_of(const Finish& f) noexcept {
    return f.divide ? static_cast<F>(f.divisor) : static_cast<F>(f.factor);
  }
  /// Machines and compilers choose different payloads and signs for NaN; one pattern keeps results equal to the bit.
  template <bool Divide>
  [[gnu::always_inline]] static Acc finish(Acc sum, Mean m) noexcept {
    const Acc mean = Divide ? sum / m : sum * m;
    return mean == mean ? mean : Acc{} + static_cast<F>(__builtin_nan(""));
  }
};

template <int Lanes>
using F32 = FloatElement<float, uint32_t, Lanes>;
template <int Lanes>
using F64 = FloatElement<double, uint64_t, Lanes>;

/// The 16-bit floats are added in F32.
template <class Isa, int Lanes>
struct F16 : F32<Lanes> {
  static constexpr int kSize = 2;
  using Raw = Vec<uint16_t, Lanes>;
  using Acc = Vec<float, Lanes>;
  [[gnu::always_inline]] static Acc widen(Raw raw) noexcept { return Isa::half_to_float(raw); }
  [[gnu::always_inline]] static Raw narrow(Acc acc) noexcept { return Isa::float_to_half(acc); }
  [[gnu::always_inline]] static Raw narrow_finished(Acc acc) noexcept { return Isa::float_to_half(acc); }
  /// What finish() returned, rounded, in F32; narrow_exact() of it loses nothing.
  [[gnu::always_inline]] static Acc rounded_float(Acc acc) noexcept { return widen(narrow_finished(acc)); }
  [[gnu::always_inline]] static Raw narrow_exact(Acc acc) noexcept { return Isa::float_to_half(acc); }
};

template <class Isa, int Lanes>
struct BF16 : F32<Lanes> {
  static constexpr int kSize = 2;
  using Raw = Vec<uint16_t, Lanes>;
  using Acc = Vec<float, Lanes>;
  using Bits = Vec<uint32_t, Lanes>;
  [[gnu::always_inline]] static Acc widen(Raw raw) noexcept { return as<Acc>(Isa::widen(raw) << 16); }
  /// Round to nearest even. The one NaN that finish() knows survives the addition.
  [[gnu::always_inline]] static Bits rounded(Bits bits) noexcept { return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16; }
  [[gnu::always_inline]] static Raw narrow_finished(Acc acc) noexcept { return Isa::narrow(rounded(as<Bits>(acc))); }
  /// What finish() returned, rounded, in F32; narrow_exact() of it loses nothing.
  [[gnu::always_inline]] static Acc rounded_float(Acc acc) noexcept { return as<Acc>(rounded(as<Bits>(acc)) << 16); }
  [[gnu::always_inline]] static Raw narrow_exact(Acc acc) noexcept { return Isa::narrow(as<Bits>(acc) >> 16); }
  /// A NaN keeps the top of its payload and becomes quiet.
  [[gnu::always_inline]] static Raw narrow(Acc acc) noexcept {
    const Bits bits = as<Bits>(acc);
    const Bits nan = bits >> 16 | 0x40u;
    return Isa::narrow(acc == acc ? rounded(bits) : nan);
  }
};

/// Sums of whole numbers are kept in U, the unsigned type of their size, where they wrap; order and division are those of S.
template <class S, class U, int Lanes>
struct IntElement {
  static constexpr int kLanes = Lanes;
  static constexpr int kSize = sizeof(S);
  static constexpr int kAccSize = sizeof(S);
  using Raw = Vec<U, kLanes>;
  using Acc = Vec<U, kLanes>;
  using Ordered = Vec<S, kLanes>;

  [[gnu::always_inline]] static Acc widen(Raw raw) noexcept { return raw; }
  [[gnu::always_inline]] static Raw narrow_finished(Acc acc) noexcept { return acc; }
  [[gnu::always_inline]] static Acc add(Acc a, Acc b) noexcept { return a + b; }
  [[gnu::always_inline]] static Acc multiply(Acc a, Acc b) noexcept { return a * b; }
  [[gnu::always_inline]] static Acc min(Acc a, Acc b) noexcept { return as<Ordered>(a) < as<Ordered>(b) ? a : b; }
  [[gnu::always_inline]] static Acc max(Acc a, Acc b) noexcept { return as<Ordered>(a) > as<Ordered>(b) ? a : b; }

  using Mean = int64_t;  // the divisor
  [[gnu::always_inline]] static Mean mean_of(const Finish& f) noexcept { return static_cast<int64_t>(f.divisor); }
  template <bool Divide>
  [[gnu::always_inline]] static Acc finish(Acc sum, Mean divisor) noexcept {
    if constexpr (Divide) {
      S element[kLanes];
      __builtin_memcpy(element, &sum, sizeof sum);
      for (int k = 0; k < kLanes; ++k) element[k] = static_cast<S>(static_cast<int64_t>(element[k]) / divisor);
      __builtin_memcpy(&sum, element, sizeof sum);
    }
    return sum;
  }
};

struct Add {
  template <class E>
  [[gnu::always_inline]] static typename E::Acc apply(typename E::Acc a, typename E::Acc b) noexcept {
    return E::add(a, b);
  }
};
struct Multiply {
  template <class E>
  [[gnu::always_inline]] static typename E::Acc apply(typename E::Acc a, typename E::Acc b) noexcept {
    return E::multiply(a, b);
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
