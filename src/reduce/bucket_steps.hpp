// What may follow the reduction of a bucket on the lane: its step. The lane works on operations in order, and comes to one whose predecessor
// only waits for other ranks. What needs the own slice alone may run by then (the give of a sharded step); what needs the whole bucket looks
// whether its reduction is done.
// Tested by conformance/fused_test.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "bucket/plan.hpp"
#include "comm/transport.hpp"
#include "reduce/block_update.hpp"

namespace ddp {

/// Updates the blocks of a bucket that an operation gives to it; `piece` is a position in the bucket.
class UpdateWork final : public SliceWork {
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
class UpdateAfter final : public BucketOperation {
 public:
  UpdateAfter(UpdateWork& work, std::vector<int64_t> counts) : work_(work), counts_(std::move(counts)) {}
  void start(BucketOperation& reduction) noexcept {
    reduction_ = &reduction;
    piece_ = 0;
    at_ = 0;
  }
  void start(const Note&) override { start(*reduction_); }
  [[nodiscard]] Progress advance(int64_t budget_bytes) override;
  /// The reduction is finished: the lane has seen to that.
  void finish() override { work_on(INT64_MAX); }
  [[nodiscard]] bool share_done() const noexcept override { return piece_ == counts_.size(); }
  [[nodiscard]] const Note& note() const noexcept override { return reduction_->note(); }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string way() const override { return "own update"; }

 private:
  void work_on(int64_t budget_bytes) noexcept;

  UpdateWork& work_;
  std::vector<int64_t> counts_;  // elements, by piece
  BucketOperation* reduction_ = nullptr;
  size_t piece_ = 0;
  int64_t at_ = 0;
};

}  // namespace ddp
