// SPDX-License-Identifier: Apache-2.0
// The loops of kernels.hpp take whole groups of kGroup elements; these functions give them arrays of any length. What is
// left over at an end is copied to the stack, filled up with zeros, worked on there and copied back. Cost: some tens of
// nanoseconds an end. Any thread.
// Tested by unit/device/reduce_test.cpp (every length, every alignment).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cpu/kernels.hpp"

namespace ddp::cpu {

inline const void* offset(const void* base, int64_t bytes) noexcept { return static_cast<const std::byte*>(base) + bytes; }
inline void* offset(void* base, int64_t bytes) noexcept { return static_cast<std::byte*>(base) + bytes; }

/// A group on the stack, of elements of up to 8 bytes.
struct Group {
  alignas(64) std::byte bytes[kGroup * 8];

  void fill(const void* from, int64_t count, int64_t size) noexcept {
    const auto used = static_cast<size_t>(count * size);
    std::memcpy(bytes, from, used);
    std::memset(bytes + used, 0, static_cast<size_t>(kGroup * size) - used);
  }
  void empty(void* to, int64_t count, int64_t size) const noexcept {
    std::memcpy(to, bytes, static_cast<size_t>(count * size));
  }
};

/// How an array is cut: [0, head) before `target` is aligned to a cache line, whole groups up to `tail`, and the rest.
struct Cut {
  int64_t head;
  int64_t tail;
};

// In elements: below, another end costs more than straddled cache lines.
inline constexpr int64_t kWorthAligning = int64_t{64} * kGroup;

inline Cut cut(const void* target, int64_t size, int64_t count) noexcept {
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(target) % 64);
  const int64_t head = past == 0 || past % size != 0 || count < kWorthAligning ? 0 : (64 - past) / size;
  return {head, head + (count - head) / kGroup * kGroup};
}

}  // namespace ddp::cpu
