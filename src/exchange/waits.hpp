// SPDX-License-Identifier: Apache-2.0
// The cost of late ranks for this one: the time that its program waited, by the rank that it waited for.
//
// Every wait of a collective ends in note(). Over shared memory a wait is for the rank that came last, over sockets for the
// peer whose message is waited for. If that one had waited itself, because it crosses to other hosts for its own host's
// ranks, it reports for which rank and how long, and that share of the wait is counted there. Above 16 linked members
// headers are forwarded, and the wait counts for the member next to this one. A progress thread that waits while the program
// computes costs nothing, and is not counted. Cost: two looks at a clock and an addition for each wait; over shared memory
// only for those that last some microseconds. Allocates nothing after it was made. Threads: any. Tested by
// unit/exchange/waits_test.cpp and conformance/waits_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "control/call_state.hpp"

namespace ddp::collective {

/// The rank for which another one waited, and how long.
struct Late {
  int32_t rank = -1;  // -1: none
  int64_t ns = 0;
};

/// One wait of one thread, for one rank.
struct Wait {
  int32_t rank = -1;
  int32_t channel = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

class Waits {
 public:
  /// Of this many ranks. `calls` knows whether the program waits, and the observer; it outlives this. `known_as`: the ranks'
  /// numbers for the observer; empty: the same.
  Waits(const bootstrap::CallState& calls, int32_t ranks, std::vector<int32_t> known_as = {})
      : calls_(calls), known_as_(std::move(known_as)), waited_ns_(static_cast<size_t>(ranks)) {}

  /// A wait is over. The share in `late` of its end counts for another rank: the rank that was waited for had waited itself.
  void note(const Wait& wait, const Late& late = {}) noexcept;

  /// How long the program has waited for this rank, in all.
  [[nodiscard]] int64_t waited_ns(int32_t rank) const noexcept {
    return waited_ns_[static_cast<size_t>(rank)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] int32_t ranks() const noexcept { return static_cast<int32_t>(waited_ns_.size()); }

 private:
  void add(int32_t rank, int64_t begin_ns, int64_t end_ns) noexcept;

  const bootstrap::CallState& calls_;
  const std::vector<int32_t> known_as_;
  std::vector<std::atomic<int64_t>> waited_ns_;  // by rank
};

}  // namespace ddp::collective
