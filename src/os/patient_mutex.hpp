// SPDX-License-Identifier: Apache-2.0
// A mutex that a thread may stop waiting for. As std::timed_mutex, whose timed lock the thread sanitizer of GCC 12 does not
// know, so that it takes every unlock for a mistake.
// Tested by unit/os/patient_mutex_test.cpp.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ddp::os {

class PatientMutex {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [this] { return !held_; });
    held_ = true;
  }
  [[nodiscard]] bool try_lock_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    if (!free_.wait_for(lock, limit, [this] { return !held_; })) return false;
    held_ = true;
    return true;
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
    }
    free_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool held_ = false;
};

}  // namespace ddp::os
