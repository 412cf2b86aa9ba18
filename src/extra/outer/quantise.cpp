// SPDX-License-Identifier: Apache-2.0
#include "extra/outer/quantise.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/sum_tree.hpp"

namespace ddp::outer {
namespace {

constexpr int64_t kBlock = kQuantisedBlock;

int64_t blocks_of(int64_t count) noexcept { return (count + kBlock - 1) / kBlock; }

/// Bytes of the integers of a block; of the last one too, whatever its length.
int64_t block_bytes(int32_t bits) noexcept { return kBlock * bits / 8; }

float largest(const float* data, int64_t count) noexcept {
  float most = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(data[i]);
    most = magnitude > most ? magnitude : most;
    finite = finite && std::isfinite(data[i]);
  }
  return finite ? most : std::nanf("");
}

struct Numbers {
  int8_t of[kBlock];
};

void pack(const Numbers& numbers, int32_t bits, std::byte* to) noexcept {
  if (bits == 8) {
    std::memcpy(to, numbers.of, sizeof numbers.of);
    return;
  }
  for (int64_t i = 0; i < kBlock / 2; ++i)
    to[i] = static_cast<std::byte>((numbers.of[2 * i] & 0xf) | (numbers.of[2 * i + 1] & 0xf) << 4);
}

Numbers unpack(const std::byte* from, int32_t bits) noexcept {
  Numbers numbers;
  if (bits == 8) {
    std::memcpy(numbers.of, from, sizeof numbers.of);
    return numbers;
  }
  for (int64_t i = 0; i < kBlock / 2; ++i) {
    const auto byte = static_cast<uint8_t>(from[i]);
    numbers.of[2 * i] = static_cast<int8_t>(static_cast<int8_t>(byte << 4) >> 4);
    numbers.of[2 * i + 1] = static_cast<int8_t>(static_cast<int8_t>(byte) >> 4);
  }
  return numbers;
}

/// The scale; writes the integers, and what is lost.
float quantise_block(const float* data, int64_t count, int32_t most, Numbers& numbers, float* lost) noexcept {
  const float scale = largest(data, count) / static_cast<float>(most);
  std::memset(numbers.of, 0, sizeof numbers.of);
  if (!std::isnormal(scale)) {  // zero, too small to be distinguished, or not finite
    if (lost != nullptr)
      for (int64_t i = 0; i < count; ++i) lost[i] = std::isnan(scale) ? 0.0F : data[i];
    return std::isnan(scale) ? scale : 0.0F;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float multiple = data[i] / scale;
    const float away = multiple < 0 ? multiple - 0.5F : multiple + 0.5F;
    const int32_t number = std::clamp(static_cast<int32_t>(away), -most, most);
    numbers.of[i] = static_cast<int8_t>(number);
    if (lost != nullptr) lost[i] = data[i] - static_cast<float>(number) * scale;
  }
  return scale;
}

/// The packed arrays of all ranks, at one block.
struct BlockOfRanks {
  const std::byte* packed;
  int64_t stride;
  int64_t block;
  int64_t blocks;
  int32_t bits;

  void leaf(int64_t rank, float* out) const noexcept {
    const std::byte* const mine = packed + rank * stride;
    float scale = 0;
    std::memcpy(&scale, mine + block * static_cast<int64_t>(sizeof scale), sizeof scale);
    const Numbers numbers = unpack(mine + blocks * static_cast<int64_t>(sizeof scale) + block * block_bytes(bits), bits);
    for (int64_t i = 0; i < kBlock; ++i) out[i] = static_cast<float>(numbers.of[i]) * scale;
  }
  void sum(int64_t lo, int64_t hi, float* out) const noexcept {
    if (hi - lo == 1) return leaf(lo, out);
    const int64_t mid = sum_mid(lo, hi);
    float right[kBlock];
    sum(lo, mid, out);
    sum(mid, hi, right);
    for (int64_t i = 0; i < kBlock; ++i) out[i] = out[i] + right[i];
  }
};

}  // namespace

int64_t packed_bytes(int64_t count, int32_t bits) noexcept {
  return blocks_of(count) * (static_cast<int64_t>(sizeof(float)) + block_bytes(bits));
}

void quantise(const float* data, int64_t count, int32_t bits, std::byte* packed, float* lost) noexcept {
  const int32_t most = bits == 8 ? 127 : 7;
  const int64_t blocks = blocks_of(count);
  std::byte* integers = packed + blocks * static_cast<int64_t>(sizeof(float));
  for (int64_t block = 0; block < blocks; ++block, integers += block_bytes(bits)) {
    const int64_t first = block * kBlock;
    Numbers numbers;
    const float scale = quantise_block(data + first, std::min(kBlock, count - first), most, numbers,
                                       lost == nullptr ? nullptr : lost + first);
    std::memcpy(packed + block * static_cast<int64_t>(sizeof scale), &scale, sizeof scale);
    pack(numbers, bits, integers);
  }
}

void add_quantised(const std::byte* packed, int64_t stride, int32_t ranks, int64_t count, int32_t bits, float divisor,
                   float* data) noexcept {
  const int64_t blocks = blocks_of(count);
  for (int64_t block = 0; block < blocks; ++block) {
    float sum[kBlock];
    BlockOfRanks{packed, stride, block, blocks, bits}.sum(0, ranks, sum);
    const int64_t first = block * kBlock;
    for (int64_t i = 0; i < std::min(kBlock, count - first); ++i) data[first + i] = sum[i] / divisor;
  }
}

}  // namespace ddp::outer
