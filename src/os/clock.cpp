// SPDX-License-Identifier: Apache-2.0
#include "os/clock.hpp"

#include <atomic>
#include <ctime>

namespace ddp::os {
namespace {

int64_t read_clock(clockid_t clock) noexcept {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

int64_t system_now() noexcept { return read_clock(CLOCK_MONOTONIC); }

std::atomic<ClockFn> source{&system_now};

}  // namespace

int64_t now_ns() noexcept { return source.load(std::memory_order_relaxed)(); }

int64_t realtime_ns() noexcept { return read_clock(CLOCK_REALTIME); }

void set_clock(ClockFn fn) noexcept { source.store(fn != nullptr ? fn : &system_now, std::memory_order_relaxed); }

}  // namespace ddp::os
