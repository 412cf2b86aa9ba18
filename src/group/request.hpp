// SPDX-License-Identifier: Apache-2.0
// A request: a call that was posted and that ends later, by itself. It ends once, with a result or with an error. Each later
// test or wait gets that error. Two kinds: a collective, in the order of the group's requests (request_lane), and a message
// (message_requests).
// Threads: one at a time tests, waits or releases; end() from any.
// Tested by conformance/requests_test.cpp and capi/requests_test.c.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace ddp::group {

/// A thread that waits for the first of several requests.
class Waker {
 public:
  void wake() noexcept;
  /// Until woken, at most `ms`; below 0: without a limit.
  void wait(int64_t ms);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

class Request {
 public:
  /// For wait(): until it has ended.
  static constexpr int64_t kForEver = -1;

  /// One that has ended well.
  [[nodiscard]] static std::shared_ptr<Request> make_ended();

  Request() = default;
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// Has it ended? Never waits for other ranks; if not, a thread of the library works on it from now on. Throws the error
  /// that it has ended with.
  [[nodiscard]] bool test() {
    if (!ended() && !look()) return false;
    check();
    conclude();
    return true;
  }
  /// The same, after `ms` at most. This thread may work on it itself.
  [[nodiscard]] bool wait(int64_t ms) {
    if (!ended() && !stay(ms)) return false;
    check();
    conclude();
    return true;
  }
  /// The last call. On return its memory is not used any more: a receive for which nothing has come is withdrawn, and
  /// anything else is waited for.
  void release() noexcept;
  /// The first thread that finds a good end by test() or wait() calls this before it returns. If it throws, the next one
  /// tries again. Set before the program has the request.
  void at_end(std::function<void()> conclude) { conclude_ = std::move(conclude); }
  /// Of a receive that has ended: the rank that sent; else -1.
  [[nodiscard]] virtual int32_t source() const noexcept { return -1; }

  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  /// `waker` is woken when it ends, or now if it has.
  void add_waker(Waker& waker);
  void remove_waker(const Waker& waker) noexcept;

 protected:
  /// Only the first end counts.
  void end(const std::optional<Error>& error) noexcept;

 private:
  void check() const {
    if (error_.has_value()) throw Error(*error_);
  }
  void conclude() {
    if (!conclude_) return;
    conclude_();
    conclude_ = nullptr;
  }
  // Of one that has not ended.
  [[nodiscard]] virtual bool look() { return false; }
  [[nodiscard]] virtual bool stay(int64_t /*ms*/) { return false; }
  /// False: it has to be waited for.
  [[nodiscard]] virtual bool withdraw() { return false; }

  std::atomic<bool> ended_{false};
  std::function<void()> conclude_;  // of the threads that test and wait
  std::mutex mutex_;                // guards what follows; error_ does not change once it has ended
  std::optional<Error> error_;
  std::vector<Waker*> wakers_;
};
using RequestPtr = std::shared_ptr<Request>;

/// What open requests end with in a destructor. Without memory for the text it is OUT_OF_MEMORY.
[[nodiscard]] Error group_destroyed() noexcept;

/// The first in the list that has ended, after `ms` at most; -1: none has. Throws the error of that one; `found` is then its
/// place too.
[[nodiscard]] int32_t wait_any(const std::vector<RequestPtr>& requests, int64_t ms, int32_t* found);

}  // namespace ddp::group
