// SPDX-License-Identifier: Apache-2.0
// How a thread of the library waits for requests: it looks again each millisecond, and after some looks in vain sleeps until
// it is woken, which takes who posts a system call. All calls under the owner's lock.
// Tested by unit/group/request_lane_test.cpp and conformance/requests_test.cpp.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ddp::group {

class IdleWait {
 public:
  /// Not `looks_again`: sleeps at once.
  void sleep(std::unique_lock<std::mutex>& lock, bool looks_again) {
    if (looks_again && looks_ < kMostLooks) {
      ++looks_;
      woken_.wait_for(lock, kBetweenLooks);
      return;
    }
    asleep_ = true;
    woken_.wait(lock);
    asleep_ = false;
    looks_ = 0;
  }
  /// Something is there: the looks begin anew.
  void found() noexcept { looks_ = 0; }

  /// There is work, which may wait until the next look.
  void notify() noexcept {
    if (asleep_) woken_.notify_one();
  }
  /// There is work that must not wait.
  void hurry() noexcept {
    hurried_ = true;
    woken_.notify_one();
  }
  void wake() noexcept { woken_.notify_all(); }
  [[nodiscard]] bool is_hurried() const noexcept { return hurried_; }
  void calm_down() noexcept { hurried_ = false; }

 private:
  static constexpr std::chrono::microseconds kBetweenLooks{1000};
  static constexpr int32_t kMostLooks = 10;

  std::condition_variable woken_;
  bool asleep_ = false, hurried_ = false;
  int32_t looks_ = 0;
};

}  // namespace ddp::group
