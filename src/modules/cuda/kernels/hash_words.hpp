// SPDX-License-Identifier: Apache-2.0
// A hash of an array that many threads can form in any order: the sum, modulo 2^64, of one mixed number for each 8 bytes and
// their place, and one for the length. For comparing replicas: two arrays that differ anywhere have equal hashes with a
// probability of 2^-64, unless made so on purpose. The mixing is splitmix64's (Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", 2014). Pure functions, also for the host. Tested by unit/cuda/hash_words_test.cpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "modules/cuda/kernels/numbers.hpp"

namespace ddp::cuda {

DDP_HD uint64_t mixed(uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// What an array of `bytes` begins with.
DDP_HD uint64_t hash_of_length(uint64_t bytes) noexcept { return mixed(bytes ^ 0x6a09e667f3bcc908u); }

/// What the 8 bytes number `index` add.
DDP_HD uint64_t hash_of_word(uint64_t word, uint64_t index) noexcept {
  return mixed(word + (index + 1) * 0x9e3779b97f4a7c15u);
}

/// The 8 bytes from `at` on as a little-endian number; zeros where the array has ended.
DDP_HD uint64_t word_at(const unsigned char* bytes, uint64_t at, uint64_t end) noexcept {
  uint64_t word = 0;
  for (uint32_t k = 0; k < 8 && at + k < end; ++k) word |= static_cast<uint64_t>(bytes[at + k]) << (8 * k);
  return word;
}

/// The whole, one word after the other.
inline uint64_t hash_of(const void* data, uint64_t bytes) noexcept {
  uint64_t sum = hash_of_length(bytes);
  for (uint64_t at = 0; at < bytes; at += 8)
    sum += hash_of_word(word_at(static_cast<const unsigned char*>(data), at, bytes), at / 8);
  return sum;
}

}  // namespace ddp::cuda
