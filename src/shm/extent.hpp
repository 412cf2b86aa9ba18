// SPDX-License-Identifier: Apache-2.0
// The place of a rank's tensor in its region, as one number that the other ranks get, and how much of the tensor they reach.
// Of memory of the program that is shared where it is (lent.hpp), only whole pages are in the region: the first and the last
// bytes of a tensor may be outside. The number is then the place where the tensor would begin, marked kPagesOnly.
// Pure functions. Tested by unit/exchange/extent_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shm/page.hpp"

namespace ddp::shm {

inline constexpr int64_t kPageBytes = 4096;
inline constexpr int64_t kLineBytes = 64;  // of a cache
inline constexpr int64_t kPagesOnly = int64_t{1} << 62;

/// Of the first byte in the region; the tensor must have a place.
[[nodiscard]] constexpr int64_t offset_in(int64_t place) noexcept { return place & ~kPagesOnly; }

/// Elements [first, first + count) of a tensor.
struct Extent {
  int64_t first = 0;
  int64_t count = 0;
};

/// The elements that the other ranks reach; all or none of them, unless the place is marked.
[[nodiscard]] constexpr Extent extent_of(int64_t place, int64_t count, int64_t element_bytes) noexcept {
  if (place == kNotInReach) return {};
  if ((place & kPagesOnly) == 0) return {0, count};
  const int64_t begin = offset_in(place), end = begin + count * element_bytes;
  const int64_t from = (begin + kPageBytes - 1) / kPageBytes * kPageBytes - begin;
  const int64_t to = end / kPageBytes * kPageBytes - begin;
  const int64_t first = (from + element_bytes - 1) / element_bytes;
  return {first, std::max<int64_t>(to / element_bytes - first, 0)};
}

/// The elements in both.
[[nodiscard]] constexpr Extent common(const Extent& a, const Extent& b) noexcept {
  const int64_t first = std::max(a.first, b.first);
  return {first, std::max<int64_t>(std::min(a.first + a.count, b.first + b.count) - first, 0)};
}

}  // namespace ddp::shm
