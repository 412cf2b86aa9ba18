// SPDX-License-Identifier: Apache-2.0
#include "shm/stage_ring.hpp"

#include "shm/engine.hpp"

namespace ddp::shm {

uint64_t StageRing::take(uint64_t count) noexcept {
  const uint64_t before = taken_;
  taken_ += count;
  return before;
}

std::byte* StageRing::stage(int32_t of, uint64_t chunk) const noexcept {
  return engine_.mesh().page(of).stage[chunk % kStageDepth];
}
std::byte* StageRing::result(int32_t of, uint64_t chunk) const noexcept {
  return engine_.mesh().page(of).result[chunk % kStageDepth];
}

bool StageRing::stage_free(uint64_t chunk) noexcept {
  const Use& use = uses_[chunk % kStageDepth];
  return use.chunk == 0 || engine_.all_reached(use.until, use.chunk);
}

bool StageRing::result_free(uint64_t chunk) noexcept {
  return chunk <= static_cast<uint64_t>(kStageDepth) ||
         engine_.all_reached(Counter::kTaken, chunk - static_cast<uint64_t>(kStageDepth));
}

void StageRing::use_stage(uint64_t chunk, Counter until) noexcept { uses_[chunk % kStageDepth] = Use{until, chunk}; }

}  // namespace ddp::shm
