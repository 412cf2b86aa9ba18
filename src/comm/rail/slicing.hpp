// When a direct exchange is taken, who owns which part of an array in it, and how a slice is cut into segments. Pure functions of what
// all members know, so that all of them decide alike.
// Tested by unit/comm/exchange_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/rail/segments.hpp"

namespace ddp {

/// Members that are linked with each other at most: each has two connections to every other one.
inline constexpr int32_t kMostDirect = 16;
/// A smaller array goes along the chain.
inline constexpr int64_t kLeastDirect = int64_t{256} << 10;

/// Is there a direct exchange between so many members at all? Equal on all of them.
[[nodiscard]] constexpr bool links_all(int32_t members, const ChainOptions& options) noexcept {
  return options.route != Route::kChain && members > 1 && members <= kMostDirect;
}
/// Does an array of so many bytes under way take it?
[[nodiscard]] constexpr bool goes_direct(int64_t bytes, int32_t members, const ChainOptions& options) noexcept {
  return links_all(members, options) && bytes >= (options.route == Route::kDirect ? 1 : kLeastDirect);
}

/// Who owns what, and how a slice is cut: a function of its arguments alone, so that all members cut alike.
class Slicing {
 public:
  Slicing(int64_t count, int64_t element_size, int32_t members, bool exact_parts, const ChainOptions& options) noexcept
      : count_(count), size_(element_size) {
    slice_ = (count + members - 1) / members;
    if (!exact_parts) slice_ = (slice_ + 15) / 16 * 16;
    const int64_t largest = largest_segment(members);
    int64_t bytes = options.segment_bytes;
    if (bytes <= 0) bytes = std::clamp(slice_ * size_ / 4, std::min(kSmallest, largest), largest);
    each_ = std::max<int64_t>(1, std::min(bytes, largest) / size_);
    if (each_ > 16) each_ -= each_ % 16;
  }
  /// So that the segments in flight of all members stay in the caches.
  [[nodiscard]] static constexpr int64_t largest_segment(int32_t members) noexcept {
    return std::min(kLargestSegment, (int64_t{8} << 20) / members);
  }

  /// Segments of the longest slice.
  [[nodiscard]] int64_t number() const noexcept { return (std::min(slice_, count_) + each_ - 1) / each_; }
  /// Segment t of the member's slice; it may be shorter than others, and empty.
  [[nodiscard]] Span span(int32_t member, int64_t t) const noexcept {
    const int64_t begin = std::min(count_, member * slice_);
    const int64_t end = std::min(count_, begin + slice_);
    const int64_t first = std::min(end, begin + t * each_);
    return Span{first, std::min(each_, end - first)};
  }
  [[nodiscard]] int64_t bytes(Span span) const noexcept { return span.count * size_; }
  [[nodiscard]] int64_t segment_bytes() const noexcept { return each_ * size_; }

 private:
  // Measured with tests/bench/gloo_bench: more and smaller messages cost more than their overlap gains.
  static constexpr int64_t kSmallest = int64_t{1} << 20;

  int64_t count_;
  int64_t size_;   // bytes of an element under way
  int64_t slice_;  // elements
  int64_t each_;
};

}  // namespace ddp
