// SPDX-License-Identifier: Apache-2.0
// How far the clocks of two ranks are apart, by bounds that hold whatever the network does: no rank has all answers of a
// gather before every rank has asked.
// Pure. Any thread.
// Tested by unit/trace/merge_test.cpp and process/ddprun_check_test.sh.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace ddp::trace {

/// A gather, by the clock of one rank. `number`: the same on all ranks.
struct GatherTimes {
  uint64_t number = 0;
  int64_t begun_ns = 0;
  int64_t ended_ns = 0;
};

struct ClockBounds {
  int64_t offset_ns = 0;  // what is to be added to the other clock to have the first one's
  int64_t error_ns = 0;   // at most so wrong
};

/// From the gathers that both know; nothing if there are none. One clock may have drifted meanwhile: then the error is what
/// the gathers differ by.
[[nodiscard]] std::optional<ClockBounds> compare_clocks(std::span<const GatherTimes> first,
                                                        std::span<const GatherTimes> other);

}  // namespace ddp::trace
