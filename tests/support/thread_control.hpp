// SPDX-License-Identifier: Apache-2.0
// A control plane between the threads of one test, with nothing of the library's own in it: gather, abort, and the failure
// callback.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "control/control.hpp"
#include "core/attempt.hpp"

namespace ddp::test {

/// What the ranks share.
class ThreadHub {
 public:
  explicit ThreadHub(int size)
      : size_(size),
        calls_(static_cast<size_t>(size)),
        gave_(static_cast<size_t>(size)),
        listeners_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank)
      members_.push_back(bootstrap::Member{rank, "host" + std::to_string(rank), "boot", 1000 + rank, "127.0.0.1"});
  }

  std::vector<std::string> gather(int rank, std::string_view mine, os::Deadline deadline) {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    gave_[static_cast<size_t>(rank)] = std::string(mine);
    if (++arrived_ == size_) {
      result_ = gave_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    while (round_ == round && !cause_) {
      if (deadline.passed()) throw make_error(DDP_ERROR_TIMED_OUT, "gather of a test");
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    if (round_ == round) throw Error(*cause_);
    return result_;
  }

  void abort(const Error& cause) {
    std::vector<std::function<void(const Error&)>> listeners;
    {
      const std::lock_guard lock(mutex_);
      if (cause_) return;
      listeners = listeners_;
      cause_ = cause;
      changed_.notify_all();
    }
    for (const auto& listener : listeners)
      if (listener) listener(cause);
  }

  void on_failure(int rank, std::function<void(const Error&)> fn) {
    std::optional<Error> cause;
    {
      const std::lock_guard lock(mutex_);
      listeners_[static_cast<size_t>(rank)] = fn;
      cause = cause_;
    }
    if (cause && fn) fn(*cause);
  }

  void set_calls(int rank, const bootstrap::CallState* calls) {
    const std::lock_guard lock(mutex_);
    calls_[static_cast<size_t>(rank)] = calls;
  }
  /// Known at once.
  [[nodiscard]] bootstrap::Whereabouts where(int32_t rank) const {
    const std::lock_guard lock(mutex_);
    bootstrap::Whereabouts where;
    if (const bootstrap::CallState* calls = calls_.at(static_cast<size_t>(rank)))
      where.awaits = calls->awaits(), where.moved = calls->moved();
    return where;
  }

  [[nodiscard]] const bootstrap::Member& member(int rank) const { return members_.at(static_cast<size_t>(rank)); }
  [[nodiscard]] int size() const { return size_; }

 private:
  int size_;
  std::vector<bootstrap::Member> members_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<const bootstrap::CallState*> calls_;
  std::condition_variable changed_;
  std::vector<std::string> gave_, result_;
  int arrived_ = 0;
  int64_t round_ = 0;
  std::optional<Error> cause_;
  std::vector<std::function<void(const Error&)>> listeners_;
};

class ThreadControl : public bootstrap::Control {
 public:
  ThreadControl(ThreadHub& hub, int rank) : hub_(hub), rank_(rank) { hub_.set_calls(rank, &own_calls()); }
  ~ThreadControl() override {
    hub_.set_calls(rank_, nullptr);
    hub_.on_failure(rank_, nullptr);
  }

  [[nodiscard]] int32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] int32_t size() const noexcept override { return hub_.size(); }
  [[nodiscard]] const bootstrap::Member& member(int32_t rank) const noexcept override { return hub_.member(rank); }
  [[nodiscard]] std::vector<std::string> gather(std::string_view, std::string_view mine, os::Deadline deadline) override {
    return hub_.gather(rank_, mine, deadline);
  }
  void abort(const Error& cause) noexcept override {
    while (try_to([&] { hub_.abort(cause); })) {  // of a request for memory that failed, the next is another
    }
  }
  void leave(bootstrap::Leaving) noexcept override {}
  void on_failure(std::function<void(const Error&)> fn) override { hub_.on_failure(rank_, std::move(fn)); }
  void set_progress(int64_t, int32_t) noexcept override {}
  [[nodiscard]] Sign last_sign(int32_t rank) const override { return {0, hub_.where(rank), false}; }
  [[nodiscard]] std::string describe_progress(int32_t rank) const override {
    return "rank " + std::to_string(rank) + " was last heard in this test";
  }

 private:
  ThreadHub& hub_;
  int rank_;
};

}  // namespace ddp::test
