// SPDX-License-Identifier: Apache-2.0
// Was this process paused: stopped by a signal or a debugger, on a paused machine, or without a core? A separate thread
// reads the clock, so that the program may wait as long as it likes. Tested by unit/os/standstill_test.cpp.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace ddp::os {

class Standstill {
 public:
  /// For at least `limit_ms`. Throws std::system_error if no thread can be made.
  explicit Standstill(int64_t limit_ms);
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;
  ~Standstill();

  /// Since the last call, or the start. Also directly after the process has resumed, before the thread has checked. Any
  /// thread.
  [[nodiscard]] bool take() noexcept;

 private:
  void look() noexcept;

  const int64_t limit_ns_;
  std::atomic<int64_t> looked_ns_;
  std::atomic<bool> stood_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ddp::os
