// SPDX-License-Identifier: Apache-2.0
// How long a message is waited for: until nothing of it has moved for the group's time limit, counted over all waits for it;
// and after a failure that may not concern it, for a while.
// Threads: the messenger's lock.
// Tested by unit/exchange/messenger_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "exchange/messages/match_queue.hpp"
#include "os/awake_clock.hpp"
#include "os/clock.hpp"

namespace ddp::messages {

class Patience {
 public:
  static constexpr int64_t kLookAgainMs = 200;  // a bound for what no bell covers: clocks, deadlines

  /// 0 or less: without a limit.
  explicit Patience(int64_t timeout_ms) : timeout_ns_(std::min(timeout_ms > 0 ? timeout_ms : kForEverMs, kForEverMs) * kMs) {
    clock_.set_most_ms(2 * kLookAgainMs);
  }

  /// Has nothing of the request moved for too long, from the first call on?
  [[nodiscard]] bool is_late(const Request& request) {
    const int64_t now_ns = os::now_ns();
    clock_.tick(now_ns);
    if (!started_ || request.moved != moved_) started_ = true, moved_ = request.moved, since_ns_ = clock_.at(now_ns);
    return clock_.at(now_ns) - since_ns_ >= timeout_ns_;
  }
  /// From the first call on, for a while.
  [[nodiscard]] bool has_grace() {
    if (grace_from_ns_ == 0) grace_from_ns_ = os::now_ns();
    return os::now_ns() - grace_from_ns_ < kGraceMs * kMs;
  }

 private:
  static constexpr int64_t kMs = 1'000'000;
  static constexpr int64_t kGraceMs = 500;  // for the first cause, and for bytes that have been sent already
  static constexpr int64_t kForEverMs = INT64_MAX / (4 * kMs);

  const int64_t timeout_ns_;
  os::AwakeClock clock_;  // the others may have been stopped with this process
  bool started_ = false;
  int64_t since_ns_ = 0;
  int64_t moved_ = 0;
  int64_t grace_from_ns_ = 0;
};

}  // namespace ddp::messages
