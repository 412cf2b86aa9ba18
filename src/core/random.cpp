// SPDX-License-Identifier: Apache-2.0
#include "core/random.hpp"

namespace ddp {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53U;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57U;
constexpr uint32_t kWeyl0 = 0x9E3779B9U;  // golden ratio
constexpr uint32_t kWeyl1 = 0xBB67AE85U;  // square root of 3, less 1
constexpr int kRounds = 10;

constexpr uint32_t low32(uint64_t word) noexcept { return static_cast<uint32_t>(word & 0xffffffffU); }
constexpr uint32_t high32(uint64_t word) noexcept { return static_cast<uint32_t>(word >> 32); }

}  // namespace

PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) noexcept {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {high32(product1) ^ counter[1] ^ key[0], low32(product1), high32(product0) ^ counter[3] ^ key[1],
               low32(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint64_t philox_u64(uint64_t key, uint64_t high, uint64_t low) noexcept {
  const PhiloxCounter block = philox4x32({low32(low), high32(low), low32(high), high32(high)}, {low32(key), high32(key)});
  return uint64_t{block[1]} << 32 | block[0];
}

}  // namespace ddp
