// SPDX-License-Identifier: Apache-2.0
// Stage and result slots, numbered over all collectives of a channel: chunk k uses slot k % kStageDepth.
// Threads: one at a time, as Engine.
// Tested by conformance/collectives_test.cpp and conformance/pass_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shm/page.hpp"

namespace ddp::shm {

class Engine;

class StageRing {
 public:
  explicit StageRing(Engine& engine) noexcept : engine_(engine) {}

  /// Take `count` chunk numbers; returns the one before the first.
  uint64_t take(uint64_t count) noexcept;
  [[nodiscard]] std::byte* stage(int32_t of, uint64_t chunk) const noexcept;
  [[nodiscard]] std::byte* result(int32_t of, uint64_t chunk) const noexcept;
  /// May this rank overwrite its stage slot for `chunk`?
  [[nodiscard]] bool stage_free(uint64_t chunk) noexcept;
  [[nodiscard]] bool result_free(uint64_t chunk) noexcept;
  /// All ranks read the stage slot of `chunk` until all have reached it in `until`.
  void use_stage(uint64_t chunk, Counter until) noexcept;

 private:
  struct Use {
    Counter until = Counter::kTaken;
    uint64_t chunk = 0;
  };

  Engine& engine_;
  uint64_t taken_ = 0;
  std::array<Use, kStageDepth> uses_{};
};

}  // namespace ddp::shm
