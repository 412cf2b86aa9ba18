// SPDX-License-Identifier: Apache-2.0
// Gradients that look random and can be told again from a number.
#pragma once

#include <cstdint>

namespace ddp::test {

/// The third number of std::minstd_rand, from 0 to 20010; without its class, which is slow where nothing is inlined.
inline uint32_t noise(uint32_t seed) {
  constexpr uint64_t kModulus = 2147483647;
  uint64_t state = seed % kModulus == 0 ? 1 : seed % kModulus;
  for (int turn = 0; turn < 3; ++turn) state = state * 48271 % kModulus;
  return static_cast<uint32_t>(state % 20011);
}

}  // namespace ddp::test
