// Values from their owners to all ranks: each rank has its work write its own slice and puts it into the others' memory, block by block while
// it is in cache; what is private memory goes through the stages. Half of an all-reduce.
// Tested by process/fused_test.cpp.
#pragma once

#include "comm/shm/slice_operation.hpp"

namespace ddp::shm {

class Publication final : public SliceOperation {
 public:
  Publication(Engine& engine, const PublishSpec& spec, const std::vector<PieceReach>& reach);

 private:
  void work_in_place(const SliceMap::Route& route, int64_t at, int64_t count) noexcept override;
  [[nodiscard]] bool work_staged(int64_t* budget) override;
  [[nodiscard]] bool staged_can_move() noexcept override { return can_give() || can_take(); }
  [[nodiscard]] bool staged_done() const noexcept override { return taken_ == chunks(); }
  void reset() noexcept override { given_ = taken_ = 0; }
  [[nodiscard]] bool can_give() noexcept;
  [[nodiscard]] bool can_take() noexcept;
  void give_chunk(uint64_t k) noexcept;
  void take_chunk(uint64_t k) noexcept;

  uint64_t given_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace ddp::shm
