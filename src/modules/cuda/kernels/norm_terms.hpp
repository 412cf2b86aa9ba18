// SPDX-License-Identifier: Apache-2.0
// The terms of a norm exactly as device/cpu/arrays.cpp forms them, so that CPU and GPU give the same bits: an array is
// summed in blocks of 1,024 elements in F64, element i of a block in number i mod 32, the 32 numbers in a fixed tree; what
// is left over after whole groups of 128 elements is a block of its own. A warp is one block: its lanes are the 32 numbers.
// The blocks' sums go to a core/exact_sum as integers, whose order does not matter. Pure functions, also for the host.
// Tested by unit/cuda/norm_terms_test.cpp.
#pragma once

#include <cstdint>

#include "modules/cuda/kernels/numbers.hpp"

namespace ddp::cuda {

inline constexpr uint32_t kNormBlock = 1024;
inline constexpr uint32_t kNormGroup = 128;
inline constexpr uint32_t kNormLanes = 32;

/// How many terms an array has.
DDP_HD uint32_t terms_of(uint32_t count) noexcept {
  const uint32_t whole = count / kNormGroup * kNormGroup;
  return (whole + kNormBlock - 1) / kNormBlock + (count > whole ? 1 : 0);
}

/// The elements of a term.
struct Term {
  uint32_t first;
  uint32_t length;
};
DDP_HD Term term_at(uint32_t count, uint32_t index) noexcept {
  const uint32_t whole = count / kNormGroup * kNormGroup;
  const uint32_t first = index * kNormBlock;
  if (first >= whole) return {whole, count - whole};
  return {first, whole - first < kNormBlock ? whole - first : kNormBlock};
}

/// |x| or x^2.
DDP_HD double norm_term(double x, int32_t p) noexcept { return p == 1 ? (x < 0 ? -x : x) : x * x; }

/// What a term adds to the words of an exact sum: to three neighbours from `first` on, or one to the word that counts
/// infinities or NaNs (then the other two are 0, as many a digit is).
struct Digits {
  uint32_t first;
  uint64_t digit[3];
};
inline constexpr uint32_t kSumDigits = 68;
inline constexpr uint32_t kSumWords = kSumDigits + 2;

DDP_HD Digits digits_of(double term) noexcept {
  const auto bits = bits_as<uint64_t>(term);
  const auto exponent = static_cast<uint32_t>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & 0xfffffffffffff;
  if (exponent == 0x7ff) return {mantissa == 0 ? kSumDigits : kSumDigits + 1, {1, 0, 0}};
  if (exponent != 0) mantissa |= uint64_t{1} << 52;
  const uint32_t shift = exponent == 0 ? 0 : exponent - 1;
  const uint32_t offset = shift % 32;
  const uint64_t above = mantissa >> (32 - offset);
  return {shift / 32, {mantissa << offset & 0xffffffff, above & 0xffffffff, above >> 32}};
}

}  // namespace ddp::cuda
