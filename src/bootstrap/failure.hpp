// SPDX-License-Identifier: Apache-2.0
// The first cause that broke a group. Later causes are dropped, so every call reports the same one.
// Any thread; broken() is one relaxed-cost load, fit for a waiting loop.
// Tested by unit/bootstrap/failure_test.cpp.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "core/error.hpp"

namespace ddp::bootstrap {

class Failure {
 public:
  /// Does a cause end blocked waits? A rank that left in good order does not: what it has completed, the others may complete
  /// too, and a wait for something it did not join ends when its connections close.
  enum class Wake { kYes, kNo };

  /// True if this was the first cause. The wakers are called once, on this thread, by the first cause that wakes.
  bool set(const Error& cause, Wake wake = Wake::kYes) noexcept;
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  [[nodiscard]] bool woken() const noexcept { return woken_.load(); }
  /// Throws the cause if there is one.
  void check() const;
  /// The same for what needs no rank that has left: throws the first cause that ends waits.
  void check_fault() const;
  [[nodiscard]] std::optional<Error> cause() const;
  /// `wake` ends blocked waits (must be thread-safe and quick); called at once if that has happened already.
  void add_waker(std::function<void()> wake);
  /// Returns when no waker is running and none will be called any more. The group must be broken.
  void quiesce() const noexcept { const std::lock_guard lock(waking_); }

 private:
  std::atomic<bool> broken_{false};
  std::atomic<bool> woken_{false};
  mutable std::mutex waking_;  // held while wakers run
  mutable std::mutex mutex_;   // guards cause_ and wakers_; taken inside waking_
  std::optional<Error> cause_;
  std::vector<std::function<void()>> wakers_;
  std::optional<Error> fault_;  // the first cause that ends waits
};

}  // namespace ddp::bootstrap
