// SPDX-License-Identifier: Apache-2.0
// The numbers of a model's passes: how much is sent, how long it takes, how much of that the caller waits for.
// Threads: as PassPart.
// Tested by capi/model_test.c.
#pragma once

#include <cstdint>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/model.h"
#include "exchange/progress_queue.hpp"
#include "group/channels.hpp"
#include "pass/part.hpp"

namespace ddp::parts {

class Meter final : public pass::PassPart {
 public:
  /// `channel` outlives it.
  Meter(const group::Channel& channel, const Parameters& table, const Plan& plan);

  void begin(pass::Opening& opening) override;
  void fill(size_t bucket, collective::BucketHeader& mine) noexcept override;
  [[nodiscard]] bool conclude(const pass::Verdict& verdict) override;
  void closed(const pass::Closing& closing) noexcept override;

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
  /// The pass ended well.
  void count(collective::ProgressQueue& queue) noexcept;
  /// That pass, to whoever watches the rank.
  void tell_watch() const noexcept;

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

}  // namespace ddp::parts
