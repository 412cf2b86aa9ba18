// SPDX-License-Identifier: Apache-2.0
// A process that is stopped notices it, one that waits does not count as stopped.
#include "os/standstill.hpp"

#include "support/check.hpp"
#include "support/procs.hpp"

constexpr int64_t kLimitMs = 400;

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

ddp_case(a_stop_is_noticed_once) {
  Procs procs(1, [](int, Reporter& report) {
    os::Standstill standstill(kLimitMs);
    report.say("stop me");
    bool stood = false;
    for (int i = 0; i < 500 && !stood; ++i) sleep_ms(10), stood = standstill.take();
    expect(stood, "it stood still");
    expect(!standstill.take(), "that was said");
  });
  procs.wait_for(0, "stop me");
  procs.signal(0, SIGSTOP);
  sleep_ms(2 * kLimitMs);
  procs.signal(0, SIGCONT);
  expect_success(procs, 20'000);
}

ddp_case(a_long_wait_is_no_stop) {
  os::Standstill standstill(kLimitMs);
  expect(!standstill.take(), "nothing has happened");
  sleep_ms(2 * kLimitMs);
  expect(!standstill.take(), "to wait is not to stand still");
}
