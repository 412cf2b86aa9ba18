// SPDX-License-Identifier: Apache-2.0
#include "extra/permutation.hpp"

#include "core/random.hpp"

namespace ddp::extra {
namespace {

/// The smallest number whose square is `value` or more; value 1 to 2^63 - 1. By bisection: libm may differ between hosts.
uint64_t ceil_sqrt(uint64_t value) noexcept {
  uint64_t low = 1;
  uint64_t high = uint64_t{1} << 32;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (middle * middle >= value) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// A hash of `word` as a number below `bound` (at most 2^32): the high 64 of the 128 bits of hash * bound, so no division.
uint64_t hash_below(uint64_t word, uint64_t key, uint64_t bound) noexcept {
  const uint64_t hash = mix64(word + key);
  return ((hash >> 32) * bound + ((hash & 0xffffffffU) * bound >> 32)) >> 32;
}

uint64_t shifted(uint64_t word, uint64_t by, uint64_t bound) noexcept {
  const uint64_t sum = word + by;
  return sum < bound ? sum : sum - bound;
}

}  // namespace

Permutation::Permutation(uint64_t count, uint64_t seed, uint64_t epoch) noexcept
    : count_(count), rows_(ceil_sqrt(count)), columns_((count + rows_ - 1) / rows_) {
  swap_ = rows_ * columns_ > 1 ? philox_u64(seed, epoch, kRounds) & 1 : 0;
  for (uint64_t round = 0; round < kRounds; ++round) keys_[round] = philox_u64(seed, epoch, round);
}

uint64_t Permutation::operator()(uint64_t position) const noexcept {
  uint64_t cell = encipher(position);
  while (cell >= count_) cell = encipher(cell);
  return cell;
}

uint64_t Permutation::encipher(uint64_t cell) const noexcept {
  uint64_t row = cell / columns_;
  uint64_t column = cell % columns_;
  for (std::size_t round = 0; round < kRounds; round += 2) {
    row = shifted(row, hash_below(column, keys_[round], rows_), rows_);
    column = shifted(column, hash_below(row, keys_[round + 1], columns_), columns_);
  }
  const uint64_t result = row * columns_ + column;
  return result < 2 ? result ^ swap_ : result;
}

}  // namespace ddp::extra
