// SPDX-License-Identifier: Apache-2.0
#include "trace/clocks.hpp"

#include <algorithm>
#include <cstdlib>

#include "trace/times.hpp"

namespace ddp::trace {
namespace {

bool is_whole(const GatherTimes& times) noexcept { return is_time(times.begun_ns) && is_time(times.ended_ns); }

}  // namespace

// begun of the first <= ended + offset, and begun + offset <= ended of the first. Each gather narrows it.
std::optional<ClockBounds> compare_clocks(std::span<const GatherTimes> first, std::span<const GatherTimes> other) {
  int64_t low = INT64_MIN, high = INT64_MAX;
  for (const GatherTimes& mine : first)
    for (const GatherTimes& theirs : other) {
      if (mine.number != theirs.number || !is_whole(mine) || !is_whole(theirs)) continue;
      low = std::max(low, mine.begun_ns - theirs.ended_ns);
      high = std::min(high, mine.ended_ns - theirs.begun_ns);
    }
  if (low == INT64_MIN) return std::nullopt;
  return ClockBounds{low + (high - low) / 2, (std::abs(high - low) + 1) / 2};
}

}  // namespace ddp::trace
