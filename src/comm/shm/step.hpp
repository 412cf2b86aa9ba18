// The step of a bucket in one sweep: each rank adds up a block of its own slice of all ranks' gradients, has its work make new values of it, and
// writes those into all ranks' memory, while the block is in cache. What Scatter and Publication do one after the other over the whole
// slice, with one announcement instead of two.
//
// Why the values may be written at once: they are those of the bucket's own parameters, and every rank has said by its announcement that it
// is done with them in this pass.
// Only for arrays that lie in everybody's reach. Threads: one at a time.
// Tested by process/fused_test.cpp.
#pragma once

#include <vector>

#include "comm/shm/slice_operation.hpp"

namespace ddp::shm {

class Step final : public SliceOperation {
 public:
  /// No piece of either is staged, and both are cut alike, so the n-th routes of both are the same elements.
  Step(Engine& engine, const BucketSpec& spec, SliceMap gradients, SliceMap values, SliceWork* work);

 private:
  void work_in_place(const SliceMap::Route& route, int64_t at, int64_t count) noexcept override;
  [[nodiscard]] bool work_staged(int64_t*) override { return false; }
  [[nodiscard]] bool staged_can_move() noexcept override { return false; }
  [[nodiscard]] bool staged_done() const noexcept override { return true; }
  void reset() noexcept override { rule_.weight_sum = note().tally.weight; }
  void reduce(const SliceMap::Route& route, int64_t at, int64_t count) noexcept;
  void give(const SliceMap::Route& route, int64_t at, int64_t count) noexcept;

  cpu::ReduceRule rule_;
  SliceMap values_;
  std::vector<const void*> in_;
};

}  // namespace ddp::shm
