// SPDX-License-Identifier: Apache-2.0
// Before memory of a device is freed, the device must be done with it, and it may never be: a kernel may wait for a lost
// rank. So each free first waits for the device, for a limited time; memory of work that has not finished by then is left to
// the process.
//
// The runtime has no wait with a limit, so a thread waits, and is left behind when the time is over. It owns what it uses.
// Not while a stream of the device is captured: CUDA allows no wait then, and nothing is freed.
// Threads: any.
// Tested by gpu_host/free_test.cpp and gpu_host/lent_communicator_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "device/gpu/gpu_abi.h"

namespace ddp::gpu {

class FreeGuard {
 public:
  FreeGuard(const ddp_gpu_table& table, int32_t device_index) noexcept : table_(table), index_(device_index) {}

  /// For how long the device may work; 0: for a minute, as at first. Also for waits that have begun. Never blocks.
  void set_limit(int64_t ms) noexcept { limit_ms_.store(ms > 0 ? ms : kLimitMs); }
  /// From now on `ends()` is called first: does the device's work with other ranks end? An empty function: its last answer
  /// stays.
  void ask(std::function<bool()> ends);
  /// Asks that once more, and not again.
  void ask_last(const std::function<bool()>& ends, const std::string& device, const std::string& owner);
  /// `device` and `owner` are for the warning that memory is left.
  [[nodiscard]] bool may_free(const std::string& device, const std::string& owner) noexcept;

 private:
  static constexpr int64_t kLimitMs = 60'000;
  [[nodiscard]] bool becomes_idle(bool was_stuck) const noexcept;
  void tell(bool was_stuck, const std::string& device, const std::string& owner) const noexcept;

  const ddp_gpu_table& table_;
  const int32_t index_;
  std::atomic<int64_t> limit_ms_{kLimitMs};
  std::mutex mutex_;  // guards what follows
  std::function<bool()> ends_;
  bool hangs_ = false;  // the last answer of ends_
  bool stuck_ = false;  // that, or the device did not become idle
};

}  // namespace ddp::gpu
