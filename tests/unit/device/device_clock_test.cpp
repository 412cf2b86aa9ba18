// SPDX-License-Identifier: Apache-2.0

#include "device/gpu/timeline.hpp"
#include "support/check.hpp"

using gpu::DeviceClock;

ddp_case(it_begins_in_the_middle) {
  DeviceClock clock;
  clock.begin(1'000, 1'020);
  expect_equal(clock.host_ns(0), int64_t{1'010}, "time 0");
  expect_equal(clock.host_ns(-5), int64_t{1'005}, "before it");
}

ddp_case(what_was_enqueued_later_was_done_later) {
  DeviceClock clock;
  clock.begin(1'000, 1'020);
  clock.learn(100, 1'150, 1'500);
  expect_equal(clock.host_ns(100), int64_t{1'150}, "not before it was enqueued");
  clock.learn(200, 1'000, 1'240);
  expect_equal(clock.host_ns(200), int64_t{1'240}, "not after it was seen");
  clock.learn(300, 1'000, 1'400);
  expect_equal(clock.host_ns(300), int64_t{1'340}, "nothing new");
}

/// A device whose clock gains a 20,000th. Work begins 5 us after it was enqueued and is seen up to 2 ms later.
ddp_case(it_follows_a_clock_of_another_speed) {
  constexpr int64_t kMs = 1'000'000;
  DeviceClock clock;
  const auto device_ns = [](int64_t host_ns) { return host_ns + host_ns / 20'000; };
  clock.begin(-10'000, 10'000);
  int64_t worst = 0;
  for (int64_t at = 10 * kMs; at < 100'000 * kMs; at += 10 * kMs) {
    clock.learn(device_ns(at), at - 5'000, at + (at / kMs * 7) % 2'000 * 1'000);
    worst = std::max(worst, std::abs(clock.host_ns(device_ns(at)) - at));
  }
  expect(worst <= 150'000, "every two seconds it is seen at once: " + std::to_string(worst));
  expect(device_ns(100'000 * kMs) - 100'000 * kMs == 5 * kMs, "without that it would be 5 ms");
}
