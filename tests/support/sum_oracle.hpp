// SPDX-License-Identifier: Apache-2.0
// The order of the sum over ranks, as the guide draws it, on single numbers: plain recursion, without the library. What does
// not count is -0.0.
#pragma once

#include <cstddef>
#include <vector>

namespace ddp::test {

/// The widest power of two that leaves something for the right half.
inline size_t oracle_left(size_t ranks) {
  size_t left = 1;
  while (left * 2 < ranks) left *= 2;
  return left;
}

/// add(sum of the left half, sum of the right half), of leaf(first), leaf(first + 1), ...
template <class Leaf, class Add>
auto oracle_tree(size_t first, size_t ranks, const Leaf& leaf, const Add& add) -> decltype(leaf(first)) {
  if (ranks == 1) return leaf(first);
  const size_t left = oracle_left(ranks);
  const auto a = oracle_tree(first, left, leaf, add);
  const auto b = oracle_tree(first + left, ranks - left, leaf, add);
  return add(a, b);
}

/// Floating: every addition is rounded to T.
template <class T>
T oracle_sum(const std::vector<T>& of_ranks) {
  return oracle_tree(
      0, of_ranks.size(), [&](size_t rank) { return of_ranks[rank]; },
      [](T a, T b) {
        volatile T sum = a + b;
        return static_cast<T>(sum);
      });
}

}  // namespace ddp::test
