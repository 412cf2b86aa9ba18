// SPDX-License-Identifier: Apache-2.0
// Has this process stood still: stopped by a signal or a debugger, on a machine that was paused, or without a core? A thread
// of its own looks at the clock, so that the program may wait as long as it likes. Tested by unit/os/standstill_test.cpp.
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

  /// Since the last call, or the start. Also right after it went on, before the thread has looked. Any thread.
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
