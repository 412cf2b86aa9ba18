// SPDX-License-Identifier: Apache-2.0
#include "core/exact_sum.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace ddp {
namespace {

constexpr int kDigitBits = 32;
constexpr int kLowest = -1074;  // the exponent of digit 0's lowest bit
constexpr uint64_t kMask = 0xffffffff;

}  // namespace

void ExactSum::add(double term) noexcept {
  const auto bits = std::bit_cast<uint64_t>(term);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & 0xfffffffffffff;
  if (exponent == 0x7ff) {
    ++words_[mantissa == 0 ? kDigits : kDigits + 1];
    return;
  }
  if (exponent != 0) mantissa |= uint64_t{1} << 52;
  const int shift = exponent == 0 ? 0 : exponent - 1;  // from 2^-1074
  const auto digit = static_cast<size_t>(shift / kDigitBits);
  const int offset = shift % kDigitBits;
  const uint64_t above = mantissa >> (kDigitBits - offset);
  words_[digit] += static_cast<int64_t>(mantissa << offset & kMask);
  words_[digit + 1] += static_cast<int64_t>(above & kMask);
  words_[digit + 2] += static_cast<int64_t>(above >> kDigitBits);
}

void ExactSum::join(const ExactSum& other) noexcept {
  for (size_t i = 0; i < kWords; ++i) words_[i] += other.words_[i];
}

double ExactSum::value() const noexcept {
  if (words_[kDigits + 1] != 0) return std::numeric_limits<double>::quiet_NaN();
  if (words_[kDigits] != 0) return std::numeric_limits<double>::infinity();
  std::array<uint64_t, kDigits + 2> digits{};
  uint64_t carry = 0;
  for (size_t i = 0; i < kDigits; ++i) {
    const uint64_t sum = static_cast<uint64_t>(words_[i]) + carry;
    digits[i] = sum & kMask;
    carry = sum >> kDigitBits;
  }
  digits[kDigits] = carry;
  size_t top = kDigits;
  while (top > 1 && digits[top] == 0) --top;
  // The highest 64 bits; lower bits matter only by being nonzero.
  uint64_t head = digits[top] << kDigitBits | digits[top - 1];
  if (head == 0) return 0;
  const int spare = std::countl_zero(head);
  head <<= spare;
  if (top >= 2) {
    const uint64_t below = digits[top - 2] << kDigitBits;  // its first 32 bits come next
    if (spare > 0) head |= below >> (64 - spare);
    bool trace = (spare > 0 ? below << spare : below) != 0;
    for (size_t i = 0; i + 2 < top; ++i) trace = trace || digits[i] != 0;
    if (trace) head |= 1;
  }
  const int exponent = (static_cast<int>(top) - 1) * kDigitBits - spare + kLowest;
  return std::ldexp(static_cast<double>(head), exponent);
}

}  // namespace ddp
