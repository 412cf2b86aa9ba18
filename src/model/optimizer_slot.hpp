// SPDX-License-Identifier: Apache-2.0
// The place for the one optimizer that takes part in a model's passes (shard, in_backward). It may be taken before commit.
// Threads: as Model.
// Tested by conformance/fused_test.cpp.
#pragma once

#include <memory>

#include "parts/step/block_update.hpp"
#include "parts/step/optimizer_stage.hpp"

namespace ddp::model {

class Model;

class OptimizerSlot {
 public:
  explicit OptimizerSlot(Model& model) noexcept : model_(model) {}

  /// Local; before or after commit.
  void attach(const std::shared_ptr<parts::BlockUpdate>& update);
  /// Its part in the passes once the model is committed; NULL if `update` is not attached.
  [[nodiscard]] parts::OptimizerStage* stage_of(const parts::BlockUpdate& update) const noexcept;
  /// The step of the attached optimizer. Collective if sharded.
  void run_step(const parts::BlockUpdate& update, void* stream = nullptr);
  /// Does it leave each rank its slice of the gradients alone? False before commit.
  [[nodiscard]] bool is_sharded() const noexcept;
  /// The one that is attached, as long as it lives.
  [[nodiscard]] const std::weak_ptr<parts::BlockUpdate>& update() const noexcept { return update_; }

 private:
  Model& model_;
  std::weak_ptr<parts::BlockUpdate> update_;
};

}  // namespace ddp::model
