// SPDX-License-Identifier: Apache-2.0
// A sum of F64 numbers without any rounding until it is asked for: a long fixed-point number with room for every exponent.
// The order of the terms, and how they are divided over blocks, threads and ranks, changes no bit of the result; sums of
// several ranks are joined by adding their words as integers.
//
// Terms are magnitudes (0 or more), infinite or NaN included; at most 2^30 of them over all ranks.
// The idea of the long accumulator is Kulisch's ("Computer arithmetic and validity", 2008); small superaccumulators with
// carries left for later are described by Neal ("Fast exact summation using small and large superaccumulators", 2015).
// Cost: a handful of integer operations for a term. A value; allocates nothing.
// Tested by unit/core/exact_sum_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ddp {

class ExactSum {
 public:
  static constexpr size_t kDigits = 68;  // of 32 bits, from 2^-1074 on; a word keeps its carries
  static constexpr size_t kWords = kDigits + 2;

  void add(double term) noexcept;
  void join(const ExactSum& other) noexcept;
  /// The sum, rounded once to nearest; NaN if a term was, infinity if a term was or the sum is too large.
  [[nodiscard]] double value() const noexcept;
  /// Was every term finite? (A finite sum may still overflow value().)
  [[nodiscard]] bool all_finite() const noexcept { return words_[kDigits] == 0 && words_[kDigits + 1] == 0; }

  /// For the exchange between ranks: add the words of all of them.
  [[nodiscard]] std::array<int64_t, kWords>& words() noexcept { return words_; }

 private:
  std::array<int64_t, kWords> words_{};  // the digits, then how many terms were infinite, then how many were NaN
};

}  // namespace ddp
