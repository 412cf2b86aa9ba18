// The reduction of a bucket to slices: each rank gets the sum of its own slice, and nobody writes to anybody else. Half of an all-reduce.
//
// In place: the own slice of all ranks' gradients is added in rank order into the own gradient. Staged: a chunk holds the same stretch of every
// rank's slice; every rank fills a chunk and reduces its own stretch of all chunks straight into its gradient. Of a rule with two bytes on the
// wire, chunks hold packed terms.
// Tested by process/fused_test.cpp.
#pragma once

#include "comm/shm/slice_operation.hpp"

namespace ddp::shm {

class Scatter final : public SliceOperation {
 public:
  Scatter(Engine& engine, const BucketSpec& spec, const Slices& slices, const std::vector<PieceReach>& reach, SliceWork* work);

 private:
  void work_in_place(const SliceMap::Route& route, int64_t at, int64_t count) noexcept override;
  [[nodiscard]] bool work_staged(int64_t* budget) override;
  [[nodiscard]] bool staged_can_move() noexcept override;
  [[nodiscard]] bool staged_done() const noexcept override { return seen_; }
  void reset() noexcept override;
  [[nodiscard]] bool can_fill() noexcept;
  [[nodiscard]] bool can_reduce() noexcept;
  void fill_chunk(uint64_t k) noexcept;
  void reduce_chunk(uint64_t k) noexcept;
  void show_staged() noexcept;

  [[nodiscard]] bool is_packed() const noexcept { return rule_.is_wired(); }
  void send(const SliceMap::Route& route, int64_t first, int64_t count, std::byte* to) noexcept;
  void add_packed(const SliceMap::Route& route, int64_t first, int64_t offset, int64_t count, uint64_t chunk) noexcept;

  cpu::ReduceRule rule_;
  int64_t travel_;         // bytes of an element in a chunk
  int64_t lane_elements_;  // of a chunk: what one rank owns of it
  std::vector<const void*> in_;
  uint64_t filled_ = 0;
  uint64_t reduced_ = 0;
  bool seen_ = false;  // the work saw the staged part
};

}  // namespace ddp::shm
