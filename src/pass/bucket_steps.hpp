// What may follow the reduction of a bucket on the queue: its step. The queue works on operations in order, and comes to one
// whose predecessor only waits for other ranks. What needs the own slice alone may run by then (the give of a sharded step);
// what needs the whole bucket looks whether its reduction is done.
// Tested by conformance/fused_test.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "collective/transport.hpp"
#include "core/plan.hpp"
#include "pass/block_update.hpp"

namespace ddp::pass {

/// Updates the blocks of a bucket that an operation gives to it; `piece` is a position in the bucket.
class UpdateWork final : public collective::SliceWork {
 public:
  UpdateWork(BlockUpdate& update, const PlannedBucket& bucket) : update_(update), bucket_(bucket) {}
  /// Off: the values are as they should be already.
  void set_on(bool on) noexcept { on_ = on; }
  void on_block(int32_t piece, int64_t first, int64_t count) noexcept override {
    if (on_) update_.update_block(bucket_.parameters[static_cast<size_t>(piece)], first, count);
  }
  void flush(void* stream) override { update_.flush(stream); }

 private:
  BlockUpdate& update_;
  const PlannedBucket& bucket_;
  bool on_ = true;
};

/// The step of a whole bucket on this rank, once the bucket is reduced.
class UpdateAfter final : public collective::BucketOperation {
 public:
  UpdateAfter(UpdateWork& work, std::vector<int64_t> counts) : work_(work), counts_(std::move(counts)) {}
  void start(collective::BucketOperation& reduction) noexcept {
    reduction_ = &reduction;
    piece_ = 0;
    at_ = 0;
  }
  void start(const collective::BucketHeader&) override { start(*reduction_); }
  [[nodiscard]] collective::Progress advance(int64_t budget_bytes) override;
  /// The reduction is finished: the queue has seen to that.
  void finish() override { work_on(INT64_MAX); }
  [[nodiscard]] bool local_done() const noexcept override { return piece_ == counts_.size(); }
  [[nodiscard]] const collective::BucketHeader& note() const noexcept override { return reduction_->note(); }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string describe() const override { return "own update"; }

 private:
  void work_on(int64_t budget_bytes) noexcept;

  UpdateWork& work_;
  std::vector<int64_t> counts_;  // elements, by piece
  collective::BucketOperation* reduction_ = nullptr;
  size_t piece_ = 0;
  int64_t at_ = 0;
};

}  // namespace ddp::pass
