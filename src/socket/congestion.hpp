// SPDX-License-Identifier: Apache-2.0
// The order in which the members exchange segments, decided equally by all of them. Many senders at a time keep every link
// busy at once, but their bursts meet at a switch, and one with little memory drops what it cannot hold. A drop is noticed
// where packets arrive behind a gap; that member reports it with its next header, and from the next collective on members
// take turns, for a number of exchanges. Then they try again. Each time they find gaps again, that number doubles. The state
// follows from the reports of all, so it is the same on all members. Tested by unit/exchange/congestion_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ddp::socket {

enum class Order : int32_t {
  kBySegment,  // a segment with each member in turn; whatever has a slot is under way
  kByMember,   // many segments with one member, then with the next: few send to one at a time
};

class Congestion {
 public:
  static constexpr int64_t kFewest = 64;  // exchanges
  static constexpr int64_t kMost = 4096;
  static constexpr int64_t kPacketBytes = 1448;
  static constexpr int64_t kPacketsPerGap = 1024;

  /// Did this member's links lose more than what overtakes on a healthy network?
  [[nodiscard]] static constexpr bool is_loss(int64_t gaps, int64_t received_bytes) noexcept {
    return gaps > received_bytes / kPacketBytes / kPacketsPerGap;
  }

  /// Of the next exchange that is large enough to choose.
  [[nodiscard]] Order next() noexcept {
    if (left_ == 0) return Order::kBySegment;
    --left_;
    return Order::kByMember;
  }
  /// With the headers of a collective: has any member lost packets? Returns how many exchanges will take turns because of
  /// it.
  [[nodiscard]] int64_t learn(bool lost) noexcept {
    if (!lost || left_ > 0) return 0;
    left_ = patience_;
    patience_ = std::min(2 * patience_, kMost);
    return left_;
  }

 private:
  int64_t left_ = 0;  // exchanges by member
  int64_t patience_ = kFewest;
};

}  // namespace ddp::socket
