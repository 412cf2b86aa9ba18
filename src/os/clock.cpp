// SPDX-License-Identifier: Apache-2.0
#include "os/clock.hpp"

#include <atomic>
#include <ctime>

namespace ddp::os {
namespace {

int64_t system_now() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::atomic<ClockFn> source{&system_now};

}  // namespace

int64_t now_ns() noexcept { return source.load(std::memory_order_relaxed)(); }

void set_clock(ClockFn fn) noexcept { source.store(fn != nullptr ? fn : &system_now, std::memory_order_relaxed); }

}  // namespace ddp::os
