// SPDX-License-Identifier: Apache-2.0
// Monotonic time, and deadlines on it. The source can be replaced in tests (seam: clock). Any thread.
// Tested by unit/os/clock_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::os {

inline constexpr int64_t kNsPerMs = 1'000'000;

using ClockFn = int64_t (*)() noexcept;

/// Nanoseconds of the monotonic clock.
[[nodiscard]] int64_t now_ns() noexcept;

/// Nanoseconds since 1970, by the clock that people set.
[[nodiscard]] int64_t realtime_ns() noexcept;

/// Replace the clock; NULL restores the system's. Tests only, before any group exists.
void set_clock(ClockFn source) noexcept;

/// A point in time after which waiting is over; or never.
class Deadline {
 public:
  static Deadline never() noexcept { return Deadline(INT64_MAX); }
  /// `ms` from now; 0 or less means never.
  static Deadline in_ms(int64_t ms) noexcept {
    return ms <= 0 || ms > INT64_MAX / 4'000'000 ? never() : Deadline(now_ns() + ms * 1'000'000);
  }

  [[nodiscard]] bool is_never() const noexcept { return at_ns_ == INT64_MAX; }
  [[nodiscard]] bool passed() const noexcept { return !is_never() && now_ns() >= at_ns_; }
  /// Time left, at least 0; INT64_MAX for never.
  [[nodiscard]] int64_t left_ns() const noexcept {
    if (is_never()) return INT64_MAX;
    const int64_t left = at_ns_ - now_ns();
    return left > 0 ? left : 0;
  }
  [[nodiscard]] int64_t left_ms() const noexcept { return is_never() ? INT64_MAX : (left_ns() + 999'999) / 1'000'000; }

 private:
  explicit Deadline(int64_t at_ns) noexcept : at_ns_(at_ns) {}
  int64_t at_ns_;
};

}  // namespace ddp::os
