// SPDX-License-Identifier: Apache-2.0
#include "extra/sampler.hpp"

#include "core/error.hpp"
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

namespace {

void check_switch(int32_t value, const char* function, const char* field) {
  if (value != 0 && value != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is %d; 0 and 1 are possible", function, field, value);
}

}  // namespace

void check_sampler(const ddp_sampler& sampler, const char* function) {
  if (sampler.dataset_size < 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: dataset_size is %lld; it must be 0 or more", function,
                     static_cast<long long>(sampler.dataset_size));
  if (sampler.size < 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: size is %d; there is at least 1 rank", function, sampler.size);
  if (sampler.rank < 0 || sampler.rank >= sampler.size)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: rank is %d; with size %d it must be 0 to %d", function, sampler.rank,
                     sampler.size, sampler.size - 1);
  if (sampler.seen < 0 || sampler.seen > sampler.dataset_size)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: seen is %lld; with dataset_size %lld it must be 0 to %lld", function,
                     static_cast<long long>(sampler.seen), static_cast<long long>(sampler.dataset_size),
                     static_cast<long long>(sampler.dataset_size));
  check_switch(sampler.shuffle, function, "shuffle");
  check_switch(sampler.drop_last, function, "drop_last");
}

int64_t sampler_count(const ddp_sampler& sampler) noexcept {
  const int64_t left = sampler.dataset_size - sampler.seen;
  const int64_t whole = left / sampler.size;
  const bool even = left % sampler.size == 0;
  return even || sampler.drop_last == 1 ? whole : whole + 1;
}

void sampler_fill(const ddp_sampler& sampler, int64_t epoch, int64_t first, int64_t count, int64_t* indices) noexcept {
  if (count == 0) return;
  const auto samples = static_cast<uint64_t>(sampler.dataset_size);
  const auto ranks = static_cast<uint64_t>(sampler.size);
  const uint64_t begin = static_cast<uint64_t>(sampler.seen) + static_cast<uint64_t>(sampler.rank);
  const Permutation order(samples, static_cast<uint64_t>(sampler.seed), static_cast<uint64_t>(epoch));
  for (int64_t i = 0; i < count; ++i) {
    // At most samples + ranks - 1, so it fits 64 bits for every data set.
    const uint64_t position = (begin + static_cast<uint64_t>(first + i) * ranks) % samples;
    indices[i] = static_cast<int64_t>(sampler.shuffle == 1 ? order(position) : position);
  }
}

}  // namespace ddp::extra
