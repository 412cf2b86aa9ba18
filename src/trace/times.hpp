// SPDX-License-Identifier: Apache-2.0
// Which times and amounts are taken from a file. Pure. Any thread.
// Tested by unit/trace/ring_test.cpp and unit/trace/merge_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::trace {

/// Can a clock show this? Others stand in damaged files alone; sums of a few of these do not overflow.
[[nodiscard]] constexpr bool is_time(int64_t ns) noexcept { return ns >= 0 && ns < int64_t{1} << 61; }  // 2043 in Unix time

/// Can an event have this many bytes? A few of these can be added.
[[nodiscard]] constexpr bool is_amount(int64_t bytes) noexcept { return bytes >= 0 && bytes < int64_t{1} << 56; }

}  // namespace ddp::trace
