// SPDX-License-Identifier: Apache-2.0
// What is done with a bucket when it is reduced: the norm of the own slice, its step, and the gather of its values. A step
// is the work of an exchange that gives values, or an operation of its own behind the reduction. The queue works on
// operations in order, and comes to one whose predecessor only waits for other ranks; so an operation looks whether the
// reduction is done.
// Tested by conformance/fused_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/exact_sum.hpp"
#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "exchange/transport.hpp"
#include "parts/step/block_update.hpp"
#include "parts/step/step_plan.hpp"

namespace ddp::parts {

/// The norm of this rank's part, taken while it is in cache, if the plan requires it.
class NormWork {
 public:
  NormWork(const Parameters& table, const PlannedBucket& bucket, const StepPlan& plan)
      : table_(table), bucket_(bucket), plan_(plan) {}
  NormWork(const NormWork&) = delete;
  NormWork& operator=(const NormWork&) = delete;
  /// Of an operation that does not outlive this.
  [[nodiscard]] collective::SliceWork as_work() noexcept {
    return {[this](int32_t piece, int64_t first, int64_t count) noexcept { on_block(piece, first, count); }, {}};
  }
  void clear() noexcept { sum_ = ExactSum(); }
  [[nodiscard]] const ExactSum& sum() const noexcept { return sum_; }

 private:
  void on_block(int32_t piece, int64_t first, int64_t count) noexcept;

  const Parameters& table_;
  const PlannedBucket& bucket_;
  const StepPlan& plan_;
  ExactSum sum_;
};

/// The step of a bucket on this rank; `piece` is a position in the bucket. As an operation: of the whole bucket, once it is
/// reduced.
class BucketStep final : public collective::BucketOperation {
 public:
  /// `whole`: the step is of whole tensors, and made before an exchange gives their values.
  BucketStep(BlockUpdate& update, const PlannedBucket& bucket, const StepState& state, bool whole)
      : update_(update), bucket_(bucket), state_(state), whole_(whole) {}
  /// This is the last bucket with a part of the tensor of this piece, which has `count` elements and which this rank
  /// changes.
  void complete(size_t piece, int64_t count) {
    completed_.resize(bucket_.pieces.size());
    completed_[piece] = count;
  }

  /// Of an operation that does not outlive this.
  [[nodiscard]] collective::SliceWork as_work() noexcept {
    return {[this](int32_t piece, int64_t first, int64_t count) noexcept { on_block(piece, first, count); },
            [this](void* stream) { flush(stream); }};
  }
  /// Now, before an exchange that gives the values: all of this slice that takes part.
  void work_on(const Ownership::Slice& slice) noexcept;
  /// The step is made already: an exchange only gives the values.
  void set_made(bool made) noexcept { made_ = made; }
  /// 1: the gradients are means already.
  void set_divisor(double divisor) noexcept { divisor_ = divisor; }
  [[nodiscard]] double divisor() const noexcept { return divisor_; }
  void flush(void* stream) { divisor_ == 1 ? update_.flush(stream) : update_.divide_and_flush(stream, divisor_); }

  void start(collective::BucketOperation& reduction) noexcept {
    reduction_ = &reduction;
    piece_ = 0;
    at_ = 0;
  }
  void start(const collective::BucketHeader&) override { start(*reduction_); }
  [[nodiscard]] collective::Progress advance(int64_t budget_bytes) override;
  /// The reduction is finished: the queue has seen to that.
  void finish() override { work_on(INT64_MAX); }
  [[nodiscard]] bool local_done() const noexcept override { return piece_ == bucket_.pieces.size(); }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return reduction_->header(); }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string describe() const override { return "own update"; }
  /// On a GPU the order of the stream does what the queue does elsewhere: all blocks at once, to be flushed.
  void work_on_all() noexcept;

 private:
  /// A step that was taken back has the values as they should be already.
  void on_block(int32_t piece, int64_t first, int64_t count) noexcept {
    if (!whole_ && !made_ && !state_.is(StepState::Is::kTakenBack)) change(piece, first, count);
  }
  void change(int32_t piece, int64_t first, int64_t count) noexcept {
    const PlannedPiece& planned = bucket_.pieces[static_cast<size_t>(piece)];
    update_.update_block(planned.parameter, planned.first + first, count);
  }
  void work_on(int64_t budget_bytes) noexcept;
  void change_completed(size_t piece) noexcept;

  BlockUpdate& update_;
  const PlannedBucket& bucket_;
  const StepState& state_;
  const bool whole_;
  std::vector<int64_t> completed_;  // of whole tensors, by piece: elements of the tensor; 0: it changes elsewhere
  bool made_ = false;
  double divisor_ = 1;
  collective::BucketOperation* reduction_ = nullptr;
  size_t piece_ = 0;
  int64_t at_ = 0;
};

/// The all-gather of a bucket's values as the operation after its reduction, whose header it takes. So values are sent while
/// later gradients are computed. For exchanges in host memory, over a transport that blocks: there an exchange takes its
/// place among the collectives when the queue comes to it.
class GatherBehind final : public collective::BucketOperation {
 public:
  void start(collective::BucketOperation& reduction, collective::BucketOperation& all_gather) noexcept {
    reduction_ = &reduction;
    all_gather_ = &all_gather;
    done_ = false;
  }
  void start(const collective::BucketHeader&) override { start(*reduction_, *all_gather_); }
  [[nodiscard]] collective::Progress advance(int64_t budget_bytes) override;
  /// The reduction is finished: the queue has seen to that.
  void finish() override;
  [[nodiscard]] bool local_done() const noexcept override { return done_; }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return reduction_->header(); }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string describe() const override { return "values behind " + reduction_->describe(); }

 private:
  collective::BucketOperation* reduction_ = nullptr;
  collective::BucketOperation* all_gather_ = nullptr;
  bool done_ = true;
};

}  // namespace ddp::parts
