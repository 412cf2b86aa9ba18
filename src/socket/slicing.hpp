// SPDX-License-Identifier: Apache-2.0
// Who owns which part of an array in an exchange, and how it is cut into segments. Pure functions of what all members
// know, so that all of them decide alike.
// Tested by unit/exchange/exchange_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ddp::socket {

/// Elements first to first + count.
struct Span {
  int64_t first = 0;
  int64_t count = 0;
};

/// The owned parts, by member. Together they cover every element once.
using FlatOwnership = std::vector<std::vector<Span>>;

/// A slice for each member, of about the same size.
[[nodiscard]] inline FlatOwnership equal_slices(int64_t count, int32_t members) {
  const int64_t slice = ((count + members - 1) / members + 15) / 16 * 16;
  FlatOwnership owned(static_cast<size_t>(members));
  for (int32_t member = 0; member < members; ++member) {
    const int64_t first = std::min(count, member * slice);
    const int64_t next = std::min(count, first + slice);
    if (next > first) owned[static_cast<size_t>(member)].push_back(Span{first, next - first});
  }
  return owned;
}

/// Member k owns part k.
[[nodiscard]] inline FlatOwnership parts_of(int64_t part, int32_t members) {
  FlatOwnership owned(static_cast<size_t>(members));
  for (int32_t member = 0; member < members && part > 0; ++member)
    owned[static_cast<size_t>(member)].push_back(Span{member * part, part});
  return owned;
}

/// Everything belongs to one.
[[nodiscard]] inline FlatOwnership all_of(int64_t count, int32_t owner, int32_t members) {
  FlatOwnership owned(static_cast<size_t>(members));
  if (count > 0) owned[static_cast<size_t>(owner)].push_back(Span{0, count});
  return owned;
}

struct SocketOptions {
  int64_t segment_bytes = 0;  // 0: chosen by the size of the array. Tests use small ones. Equal on all members
  int64_t ahead = 0;          // steps begun ahead; 0: chosen by the links. Members may differ
};

/// Where more are linked, their parts may overflow the buffer of a switch.
inline constexpr int32_t kFewMembers = 4;

/// How segments are exchanged.
struct Course {
  int32_t burst = 1;  // segments in a row with one member; more than 1: members take turns
  int64_t depth = 3;  // segments of a slice in flight. With bursts of one, members may differ
};

/// The segments of each member's slice. A segment is within one span.
class Slicing {
 public:
  Slicing() = default;
  /// `element_bytes`: the most that one element has under way in any message.
  Slicing(const FlatOwnership& owned, int64_t element_bytes, int32_t members, const SocketOptions& options) {
    const int64_t largest = largest_segment(members);
    int64_t longest = 0;
    for (const auto& spans : owned) longest = std::max(longest, total(spans));
    longest_ = longest;
    int64_t bytes = options.segment_bytes;
    if (bytes <= 0) bytes = std::clamp(longest * element_bytes / 4, std::min(kSmallest, largest), largest);
    each_ = std::max<int64_t>(1, std::min(bytes, largest) / element_bytes);
    if (each_ > 16) each_ -= each_ % 16;
    for (const auto& spans : owned) {
      segments_.emplace_back();
      for (const Span& span : spans)
        for (int64_t at = 0; at < span.count; at += each_)
          segments_.back().push_back(Span{span.first + at, std::min(each_, span.count - at)});
      number_ = std::max(number_, static_cast<int64_t>(segments_.back().size()));
    }
  }
  /// Where many members send to one, the parts of a step fit into a small buffer of a switch, or what does not fit is
  /// dropped. Where few do, the segments in flight of all members stay in the caches.
  [[nodiscard]] static constexpr int64_t largest_segment(int32_t members) noexcept {
    return members > kFewMembers ? std::max(kSmallBuffer / members, kLeast) : in_caches(members);
  }
  /// Segments in a row with one member, where members take turns (congestion.hpp). Fewer cost more changes.
  [[nodiscard]] static constexpr int32_t burst(int32_t members) noexcept {
    return static_cast<int32_t>(std::max<int64_t>(2, std::min(kBurst, kBursts / members) / largest_segment(members)));
  }
  /// Steps that a member begins ahead. Over long links more bytes have to be under way.
  [[nodiscard]] static constexpr int64_t ahead(int32_t members, bool long_links) noexcept {
    return long_links ? 2 * std::max<int64_t>(1, in_caches(members) / largest_segment(members)) : 2;
  }

  /// Segments of the slice that has most.
  [[nodiscard]] int64_t number() const noexcept { return number_; }
  /// Elements of the longest slice, and of a full segment.
  [[nodiscard]] int64_t longest() const noexcept { return longest_; }
  [[nodiscard]] int64_t segment() const noexcept { return each_; }
  /// Segment t of the member's slice; it may be shorter than others, and empty.
  [[nodiscard]] Span span(int32_t member, int64_t t) const noexcept {
    const auto& own = segments_[static_cast<size_t>(member)];
    return t < static_cast<int64_t>(own.size()) ? own[static_cast<size_t>(t)] : Span{};
  }

 private:
  // Measured with tests/bench/gloo_bench: more and smaller messages cost more than their overlap gains; above 2 MiB the
  // segments leave the caches.
  static constexpr int64_t kSmallest = int64_t{1} << 20;
  static constexpr int64_t kLargest = int64_t{2} << 20;
  static constexpr int64_t kLeast = int64_t{64} << 10;
  static constexpr int64_t kSmallBuffer = int64_t{1} << 20;
  static constexpr int64_t kBurst = int64_t{4} << 20, kBursts = int64_t{32} << 20;  // with one member, with all

  [[nodiscard]] static constexpr int64_t in_caches(int32_t members) noexcept {
    return std::max<int64_t>(4096, std::min(kLargest, (int64_t{8} << 20) / members));
  }

  [[nodiscard]] static int64_t total(const std::vector<Span>& spans) noexcept {
    int64_t count = 0;
    for (const Span& span : spans) count += span.count;
    return count;
  }

  int64_t number_ = 0;
  int64_t longest_ = 0;
  int64_t each_ = 1;                         // elements
  std::vector<std::vector<Span>> segments_;  // by member
};

}  // namespace ddp::socket
