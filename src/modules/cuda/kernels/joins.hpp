// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a sum over ranks (device/cpu/reduce.hpp, where the rule is written out) for elements that one thread
// has in registers: leaves, joins, the end. The order is the tree of core/sum_tree.hpp. Pure functions, also for the host.
//
// A tree over n leaves has the bits of a tree over more leaves whose others change nothing: -0.0 in a sum of floats. So
// leaves are taken eight at a time in one shape, and the sums of eight are joined as a binary counter carries.
// Tested by unit/cuda/tree_sum_test.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "modules/cuda/kernels/numbers.hpp"

namespace ddp::cuda {

/// The type that an element is added in: whole numbers in their own.
template <class E>
using Sum = std::conditional_t<std::is_integral_v<E>, E, Wide<E>>;

template <class E>
DDP_HD Sum<E> to_sum(E x) noexcept {
  if constexpr (std::is_integral_v<E>)
    return x;
  else
    return widened(x);
}
template <class E>
DDP_HD E from_sum(Sum<E> x) noexcept {
  if constexpr (std::is_integral_v<E>)
    return x;
  else
    return Narrow<E>::of(x);
}

/// One pattern for every NaN: machines choose different ones.
DDP_HD float one_nan(float x) noexcept { return x == x ? x : bits_as<float>(uint32_t{0x7fc00000u}); }
DDP_HD double one_nan(double x) noexcept { return x == x ? x : bits_as<double>(uint64_t{0x7ff8000000000000u}); }

/// Whole numbers wrap.
struct Add {
  template <class T>
  static constexpr DDP_HD T neutral() noexcept {
    if constexpr (std::is_integral_v<T>)
      return 0;
    else
      return static_cast<T>(-0.0);
  }
  template <class T>
  DDP_HD T operator()(T a, T b) const noexcept {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};

/// Every sum is rounded to E, which has 16 bits.
template <class E>
struct AddRounded {
  template <class T>
  static constexpr DDP_HD T neutral() noexcept {
    return static_cast<T>(-0.0);
  }
  DDP_HD float operator()(float a, float b) const noexcept { return widened(Narrow<E>::of(one_nan(a + b))); }
};

/// The least or the greatest. A NaN is both; -0 is less than +0.
template <bool greatest>
struct Extremum {
  template <class T>
  static constexpr DDP_HD T neutral() noexcept {
    using Limits = std::numeric_limits<T>;
    if constexpr (std::is_integral_v<T>)
      return greatest ? Limits::min() : Limits::max();
    else
      return greatest ? -Limits::infinity() : Limits::infinity();
  }
  template <class T>
  DDP_HD T operator()(T a, T b) const noexcept {
    if constexpr (!std::is_integral_v<T>) {
      using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
      if (a != a) return a;
      if (a == b) return bits_as<T>(greatest ? bits_as<U>(a) & bits_as<U>(b) : bits_as<U>(a) | bits_as<U>(b));
    }
    if constexpr (greatest)
      return a > b ? a : b;
    else
      return a < b ? a : b;
  }
};

/// Of a mean: correctly rounded; of whole numbers towards zero.
template <class T>
DDP_HD T divided(T sum, double divisor) noexcept {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<int64_t>(sum) / static_cast<int64_t>(divisor));
  else
    return sum / static_cast<T>(divisor);
}

/// A sum that is complete. `divides`: by `divisor`, of the sum's type.
template <class T>
DDP_HD T finished(T sum, bool divides, double divisor) noexcept {
  if (divides) sum = divided(sum, divisor);
  if constexpr (std::is_integral_v<T>)
    return sum;
  else
    return one_nan(sum);
}

/// x * factor / divisor: each rounded, or the product alone.
template <class T>
DDP_HD T quotient(T x, T factor, T divisor, bool divides) noexcept {
  x = x * factor;
  return one_nan(divides ? x / divisor : x);
}

inline constexpr int kBlock = 8;    // leaves that are added in one shape
inline constexpr int kLevels = 10;  // of the counter
inline constexpr int kMostLeaves = kBlock << kLevels;

/// Several elements side by side.
template <class T, int width>
struct Row {
  T element[width];
};
template <class T, int width, class Join>
DDP_HD void join_into(Row<T, width>& left, const Row<T, width>& right, const Join& join) noexcept {
  DDP_UNROLL
  for (int k = 0; k < width; ++k) left.element[k] = join(left.element[k], right.element[k]);
}

/// The tree over one block, in its first row.
template <class T, int width, class Join>
DDP_HD void join_block(Row<T, width> (&rows)[kBlock], const Join& join) noexcept {
  DDP_UNROLL
  for (int half = 1; half < kBlock; half *= 2) {
    DDP_UNROLL
    for (int k = 0; k < kBlock; k += 2 * half) join_into(rows[k], rows[k + half], join);
  }
}

/// Sums of 1, 2, 4, ... blocks that wait for their sibling. All indices are known when this is compiled, so that nodes stay
/// in registers.
template <class T, int width>
class Carries {
 public:
  template <class Join>
  DDP_HD void push(Row<T, width> sum, const Join& join) noexcept {
    bool placed = false;
    DDP_UNROLL
    for (int level = 0; level < kLevels; ++level) {
      if (placed) continue;
      if ((blocks_ >> level & 1u) == 0) {
        nodes_[level] = sum;
        placed = true;
      } else {
        join_into(nodes_[level], sum, join);
        sum = nodes_[level];
      }
    }
    if (!placed) last_ = sum;  // a full tree
    ++blocks_;
  }
  /// The last, ragged node is joined to the one before it, and so on to the first.
  template <class Join>
  [[nodiscard]] DDP_HD Row<T, width> total(const Join& join) const noexcept {
    Row<T, width> sum = last_;
    bool some = (blocks_ >> kLevels & 1u) != 0;
    DDP_UNROLL
    for (int level = 0; level < kLevels; ++level) {
      if ((blocks_ >> level & 1u) == 0) continue;
      Row<T, width> left = nodes_[level];
      if (some) join_into(left, sum, join);
      sum = left;
      some = true;
    }
    return sum;
  }

 private:
  Row<T, width> nodes_[kLevels] = {};
  Row<T, width> last_ = {};
  uint32_t blocks_ = 0;
};

/// The tree over rows 0 to leaves - 1 (at least 1, at most kMostLeaves; kBlock unless `many`). load(first, rows) gives a
/// block, with what changes nothing from `leaves` on.
template <class T, int width, bool many, class Load, class Join>
DDP_HD Row<T, width> sum_rows(int32_t leaves, const Load& load, const Join& join) noexcept {
  Row<T, width> rows[kBlock];
  if constexpr (!many) {
    load(0, rows);
    join_block(rows, join);
    return rows[0];
  } else {
    Carries<T, width> carries;
    for (int32_t first = 0; first < leaves; first += kBlock) {
      load(first, rows);
      join_block(rows, join);
      carries.push(rows[0], join);
    }
    return carries.total(join);
  }
}

}  // namespace ddp::cuda
