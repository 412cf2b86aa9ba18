// SPDX-License-Identifier: Apache-2.0
#include "os/standstill.hpp"

#include <algorithm>
#include <chrono>

#include "os/clock.hpp"
#include "os/thread.hpp"

namespace ddp::os {

Standstill::Standstill(int64_t limit_ms) : limit_ns_(std::max<int64_t>(limit_ms, 1) * 1'000'000), looked_ns_(now_ns()) {
  const auto pause = std::chrono::nanoseconds(std::max<int64_t>(limit_ns_ / 8, 1'000'000));
  thread_ = start_thread("ddp-standstill", [this, pause] {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, pause, [this] { return ends_; })) look();
  });
}

Standstill::~Standstill() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Standstill::take() noexcept {
  look();
  return stood_.exchange(false);
}

// The older time is read first, so that another thread's update between the two reads cannot make a false gap.
void Standstill::look() noexcept {
  const int64_t before = looked_ns_.load();
  const int64_t now = now_ns();
  if (now - before > limit_ns_) stood_.store(true);
  int64_t seen = before;
  while (seen < now && !looked_ns_.compare_exchange_weak(seen, now)) {
  }
}

}  // namespace ddp::os
