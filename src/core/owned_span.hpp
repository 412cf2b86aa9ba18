// SPDX-License-Identifier: Apache-2.0
// A part of one piece of a bucket, or of a parameter: elements first to first + count. What a rank owns is a list of them
// (core/ownership.hpp).
#pragma once

#include <cstdint>
#include <span>

namespace ddp {

struct OwnedSpan {
  int32_t piece = 0;
  int64_t first = 0;  // element of the piece
  int64_t count = 0;
};

/// The spans of one piece that a rank owns, in ascending order. Its data for them (state, a copy) is contiguous.
using OwnedParts = std::span<const OwnedSpan>;

[[nodiscard]] inline int64_t count_of(OwnedParts parts) noexcept {
  int64_t count = 0;
  for (const OwnedSpan& part : parts) count += part.count;
  return count;
}

/// The position of the owned element `element` among them.
[[nodiscard]] inline int64_t place_of(OwnedParts parts, int64_t element) noexcept {
  int64_t before = 0;
  for (const OwnedSpan& part : parts) {
    if (element < part.first + part.count) return before + element - part.first;
    before += part.count;
  }
  return before;
}

}  // namespace ddp
