// SPDX-License-Identifier: Apache-2.0
// One bucket with a hook, in the place of a transport's own operation: the ranks' bucket headers are combined, the gradients
// copied together, the hook runs, and when it ended well on every rank the result is copied back. A gradient that no rank
// uses is left as it is; a bucket with something missing never comes to the hook.
// Cost: one copy each way and two small gathers, besides what the hook does. Allocates nothing after it was made.
// Threads: start from the thread that marks; the rest from the queue's, or (pulled) the program's.
// Tested by conformance/hook_test.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "exchange/transport.hpp"
#include "parts/hooks/hook_bucket.hpp"
#include "parts/hooks/hook_session.hpp"

namespace ddp::parts {

class HookOperation final : public collective::BucketOperation {
 public:
  enum class State { kIdle, kStarted, kOpen, kDone };

  /// `bucket` has a piece for each of the specification's.
  HookOperation(HookSession& session, const collective::BucketSpec& spec, std::shared_ptr<HookBucket> bucket);
  ~HookOperation() override;
  HookOperation(const HookOperation&) = delete;
  HookOperation& operator=(const HookOperation&) = delete;

  void start(const collective::BucketHeader& mine) override;
  /// Hooks block, so nothing is done while gradients are marked.
  [[nodiscard]] collective::Progress advance(int64_t) override {
    return state() == State::kDone ? collective::Progress::kDone : collective::Progress::kWaiting;
  }
  void finish() override;
  [[nodiscard]] bool local_done() const noexcept override { return false; }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return header_; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override;
  [[nodiscard]] std::string describe() const override { return "copied for the hook"; }

  void reset() noexcept { end(State::kIdle); }
  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] HookBucket& bucket() const noexcept { return *bucket_; }
  /// Collective. False: there is nothing to reduce, and the operation is done.
  [[nodiscard]] bool open();
  /// Collective, after open(): the hook ended, with or without a problem.
  void close(const std::optional<Error>& problem);

 private:
  void end(State state) noexcept { state_.store(state, std::memory_order_release); }
  [[nodiscard]] std::optional<Error> run_hook();
  void copy_in() noexcept;
  void copy_out() noexcept;

  HookSession& session_;
  const cpu::ReduceRule rule_;
  const uint64_t plan_hash_;
  std::shared_ptr<HookBucket> bucket_;
  std::vector<std::byte*> addresses_;  // of the gradients
  collective::BucketHeader header_;
  double weight_ = 1;  // of this rank
  std::atomic<State> state_{State::kIdle};
};

}  // namespace ddp::parts
