// SPDX-License-Identifier: Apache-2.0
// How an optimizer takes part in the passes of its model: it changes parts of parameters when the pass reports that their
// gradients are final. Threads: update_block, restore and flush from one thread at a time, which may be the queue's. Tested
// by conformance/fused_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/parameter_set.hpp"
#include "ddp/types.h"
#include "parts/step/step_plan.hpp"

namespace ddp::parts {

class BlockUpdate {
 public:
  virtual ~BlockUpdate() = default;

  /// What it asks for in the pass that begins now.
  [[nodiscard]] virtual StepRequest request() const noexcept = 0;
  /// The parameters that it changes; never others.
  [[nodiscard]] virtual const ParameterSet& parameters() const noexcept = 0;
  /// The last of the model's passes with final gradients, counted from 1, whose gradients it has taken or cannot have taken.
  [[nodiscard]] virtual int64_t last_pass() const noexcept = 0;
  /// For errors: "adam".
  [[nodiscard]] virtual const char* rule_name() const noexcept = 0;

  /// Have all memory that the blocks of a step need; throws OUT_OF_MEMORY. Before every step's first block.
  virtual void prepare_blocks() = 0;
  /// Does this parameter change at all in a step?
  [[nodiscard]] virtual bool takes_part(int32_t index) const noexcept = 0;
  virtual void update_block(int32_t index, int64_t first, int64_t count) noexcept = 0;
  /// Take back what this step's blocks have changed on this rank. False: it was not kept, so parameters and state are
  /// updated in part.
  [[nodiscard]] virtual bool restore() noexcept = 0;
  /// To take a step back, does this rank keep its slice of parameters and state alone (OptimizerStage::kept)? Then the
  /// others have the rest.
  [[nodiscard]] virtual bool keeps_slices() const noexcept { return false; }
  /// The arrays that change together with a parameter: whole arrays, of an update that is not sharded.
  struct Beside {
    std::byte* data = nullptr;
    ddp_dtype dtype = DDP_F32;
  };
  [[nodiscard]] virtual std::vector<Beside> beside(int32_t) { return {}; }
  /// May a block fail, because the program's own function changes it? The same on all ranks.
  [[nodiscard]] virtual bool may_fail() const noexcept { return false; }
  /// The first failure of this step's blocks, and forget it; no block after it has changed. Once all of them are done.
  [[nodiscard]] virtual std::optional<Error> take_failure() noexcept { return std::nullopt; }
  /// Parameters and state are updated in part, for good.
  virtual void tear() noexcept {}
  /// All blocks of a step that a pass made have changed: the step counts.
  virtual void count_step() = 0;
  /// Blocks of parameters on a GPU are only noted by update_block and restore; now they change, in this stream's order.
  /// Throws what a GPU throws.
  virtual void flush(void* stream) = 0;
  /// As flush, of blocks whose gradients are sums (StepRequest::divides).
  virtual void divide_and_flush(void* stream, double) { flush(stream); }
};

}  // namespace ddp::parts
