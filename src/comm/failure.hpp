// The first cause that broke a group. Later causes are dropped, so every call reports the same one.
// Any thread; broken() is one relaxed-cost load, fit for a waiting loop.
// Tested by unit/comm/failure_test.cpp.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.hpp"

namespace ddp {

class Failure {
 public:
  /// True if this was the first cause. Then the wakers are called, on this thread.
  bool set(const Error& cause) noexcept;
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// Throws the cause if there is one.
  void check() const;
  [[nodiscard]] std::optional<Error> cause() const;
  /// `wake` ends blocked waits (must be thread-safe and quick); called at once if the group is broken already.
  void add_waker(std::function<void()> wake);
  /// Returns when no waker is running and none will be called any more. The group must be broken.
  void quiesce() const noexcept { const std::lock_guard lock(waking_); }

 private:
  std::atomic<bool> broken_{false};
  mutable std::mutex waking_;  // held while wakers run
  mutable std::mutex mutex_;   // guards cause_ and wakers_; taken inside waking_
  std::optional<Error> cause_;
  std::vector<std::function<void()>> wakers_;
};

}  // namespace ddp
