// SPDX-License-Identifier: Apache-2.0
#include "os/clock.hpp"

#include "support/check.hpp"

std::atomic<int64_t> set_time{0};

/// A clock that does not move until it is set, for the length of a test.
class StandingClock {
 public:
  explicit StandingClock(int64_t start_ns) {
    set(start_ns);
    os::set_clock([]() noexcept { return set_time.load(); });
  }
  ~StandingClock() { os::set_clock(nullptr); }
  StandingClock(const StandingClock&) = delete;
  static void set(int64_t ns) { set_time = ns; }
};

ddp_case(the_systems_clock_never_goes_back) {
  int64_t last = os::now_ns();
  for (int i = 0; i < 10000; ++i) {
    const int64_t now = os::now_ns();
    expect(now >= last, "time goes on");
    last = now;
  }
  expect(last > 0, "positive");
}

ddp_case(a_set_clock_is_used_until_null_restores_the_systems) {
  {
    const StandingClock clock(42);
    expect_equal(os::now_ns(), 42, "set time");
  }
  expect(os::now_ns() != 42, "the system's time is back");
}

ddp_case(a_deadline_passes_at_its_time_and_not_before) {
  const StandingClock clock(1'000);
  const os::Deadline deadline = os::Deadline::in_ms(5);
  expect(!deadline.passed() && deadline.left_ns() == 5'000'000 && deadline.left_ms() == 5, "at the start");
  StandingClock::set(1'000 + 4'999'999);
  expect(!deadline.passed() && deadline.left_ns() == 1, "a nanosecond before");
  expect_equal(deadline.left_ms(), 1, "milliseconds are rounded up, so that a wait is never cut short");
  StandingClock::set(1'000 + 5'000'000);
  expect(deadline.passed() && deadline.left_ns() == 0 && deadline.left_ms() == 0, "at its time");
  StandingClock::set(INT64_MAX / 2);
  expect(deadline.passed() && deadline.left_ns() == 0, "long after");
}

ddp_case(zero_negative_and_huge_limits_mean_never) {
  const StandingClock clock(1'000);
  for (const int64_t ms : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX, INT64_MAX / 1'000'000}) {
    const os::Deadline deadline = os::Deadline::in_ms(ms);
    expect(deadline.is_never() && !deadline.passed(), std::to_string(ms));
    expect(deadline.left_ns() == INT64_MAX && deadline.left_ms() == INT64_MAX, std::to_string(ms));
  }
  StandingClock::set(INT64_MAX);
  expect(!os::Deadline::never().passed(), "never");
}
