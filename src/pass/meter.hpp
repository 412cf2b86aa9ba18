// SPDX-License-Identifier: Apache-2.0
// The numbers of a model's passes: how much is sent, how long it takes, how much of that the caller waits for.
// Threads: one at a time, except start(), which the thread that starts the first bucket calls.
// Tested by capi/model_test.c.
#pragma once

#include <cstdint>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/model.h"
#include "exchange/progress_queue.hpp"
#include "group/channels.hpp"

namespace ddp::trace {
class Watch;
}  // namespace ddp::trace

namespace ddp::pass {

class Meter {
 public:
  /// `channel` outlives it.
  Meter(const group::Channel& channel, const Parameters& table, const Plan& plan) noexcept;

  // A pass, in this order.
  void begin() noexcept;
  void start() noexcept;
  /// The caller waits from `since_ns` to now.
  void drain(int64_t since_ns) noexcept;
  /// It ended well. `alone`: there are no other ranks.
  void finish(collective::ProgressQueue& queue, bool alone) noexcept;
  /// Publishes that pass for observers of the rank.
  void tell(trace::Watch& watch) const noexcept;

  /// `step()` sends for the pass that has ended.
  template <class Step>
  void add(Step&& step) {
    const int64_t before = channel_.transport().sent_bytes();
    step();
    const int64_t bytes = channel_.transport().sent_bytes() - before;
    stats_.sent_bytes += bytes;
    stats_.total_sent_bytes += bytes;
  }

  /// Passes that ended well.
  [[nodiscard]] int64_t passes() const noexcept { return stats_.passes; }
  void fill(ddp_model_stats& stats) const noexcept;

 private:
  const group::Channel& channel_;
  struct {
    int64_t largest = 0, smallest = 0;
  } bucket_bytes_;
  int64_t begin_ns_ = 0;
  int64_t start_ns_ = 0;    // of the first bucket
  int64_t drained_ns_ = 0;  // of the caller inside end()
  int64_t sent_before_ = 0;
  ddp_model_stats stats_{};
};

}  // namespace ddp::pass
