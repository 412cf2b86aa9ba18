// SPDX-License-Identifier: Apache-2.0
// Random numbers without state: the n-th number of a stream is a function of (key, counter).
//
// Philox4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The
// sequence is frozen: data orders of saved runs depend on it. Every counter gives 128 fresh bits, so a stream can be entered
// anywhere.
// Cost: about 20 ns a block; no memory. Any thread. Must not be used for secrets.
// Tested by unit/core/random_test.cpp with the vectors published with Random123.
#pragma once

#include <array>
#include <cstdint>

namespace ddp {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

/// The block of 128 random bits at `counter`.
[[nodiscard]] PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) noexcept;

/// The low 64 bits of the block at (high, low) in the stream of `key`.
[[nodiscard]] uint64_t philox_u64(uint64_t key, uint64_t high, uint64_t low) noexcept;

/// A bijection of 64-bit words in which every output bit depends on every input bit: the finaliser of SplitMix64 (Stafford's
/// variant 13; Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014). Frozen as well.
[[nodiscard]] constexpr uint64_t mix64(uint64_t word) noexcept {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31);
}

}  // namespace ddp
