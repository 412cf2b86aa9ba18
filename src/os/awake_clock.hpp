// SPDX-License-Identifier: Apache-2.0
// Time during which this process ran. A process that was stopped (a signal, a debugger, a paused machine) or got no core has
// read no messages of the other ranks meanwhile, so that time must not count against them. Between two ticks at most
// `most_ms` pass, however late the second comes. One thread. Tested by unit/os/awake_clock_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ddp::os {

class AwakeClock {
 public:
  /// Ticks come more often than this, unless the process was stopped.
  void set_most_ms(int64_t most_ms) noexcept { most_ns_ = std::max<int64_t>(most_ms, 1) * 1'000'000; }

  /// This clock's time when the system's is `now_ns`.
  [[nodiscard]] int64_t at(int64_t now_ns) noexcept {
    if (!started_) started_ = true, awake_ns_ = ticked_ns_ = now_ns;
    return awake_ns_ + std::clamp<int64_t>(now_ns - ticked_ns_, 0, most_ns_);
  }

  /// Returns how long ago the tick before was, by the system's clock.
  int64_t tick(int64_t now_ns) noexcept {
    awake_ns_ = at(now_ns);
    const int64_t gap_ns = now_ns - ticked_ns_;
    ticked_ns_ = now_ns;
    return gap_ns;
  }

 private:
  bool started_ = false;
  int64_t most_ns_ = INT64_MAX / 2;
  int64_t awake_ns_ = 0;
  int64_t ticked_ns_ = 0;
};

}  // namespace ddp::os
