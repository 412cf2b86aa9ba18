// SPDX-License-Identifier: Apache-2.0
// Time as far as this process ran.
#include "os/awake_clock.hpp"

#include "support/check.hpp"

constexpr int64_t kMs = 1'000'000;

ddp_case(it_goes_as_the_systems_clock_while_ticks_come) {
  os::AwakeClock clock;
  clock.set_most_ms(100);
  for (int64_t ms = 500; ms < 1'500; ms += 50) {
    (void)clock.tick(ms * kMs);
    expect_equal(clock.at((ms + 20) * kMs), (ms + 20) * kMs, "time");
  }
}

ddp_case(a_gap_counts_no_more_than_the_most) {
  os::AwakeClock clock;
  clock.set_most_ms(100);
  expect_equal(clock.tick(500 * kMs), int64_t{0}, "the first");
  expect_equal(clock.at(60'000 * kMs), 600 * kMs, "before the late tick");
  expect_equal(clock.tick(60'000 * kMs), 59'500 * kMs, "the gap");
  expect_equal(clock.at(60'000 * kMs), 600 * kMs, "after it");
  expect_equal(clock.at(60'050 * kMs), 650 * kMs, "and on");
}

ddp_case(it_never_goes_back) {
  os::AwakeClock clock;
  (void)clock.tick(500 * kMs);
  expect_equal(clock.at(400 * kMs), 500 * kMs, "time");
}
