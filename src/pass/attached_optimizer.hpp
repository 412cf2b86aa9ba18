// SPDX-License-Identifier: Apache-2.0
// The optimizer that takes part in a model's passes, if it still lives, and its stage.
// Threads: as Pass.
// Tested by conformance/fused_test.cpp.
#pragma once

#include <memory>
#include <utility>

#include "pass/block_update.hpp"
#include "pass/optimizer_stage.hpp"

namespace ddp::pass {

class AttachedOptimizer {
 public:
  /// From the next pass on, as long as it lives.
  void attach(std::weak_ptr<BlockUpdate> update, std::unique_ptr<OptimizerStage> stage) noexcept {
    stage_ = std::move(stage);
    update_ = std::move(update);
  }
  /// NULL without an optimizer.
  [[nodiscard]] OptimizerStage* stage() const noexcept { return update_.expired() ? nullptr : stage_.get(); }
  /// Its stage, also if it does not live any more.
  [[nodiscard]] OptimizerStage* last_stage() const noexcept { return stage_.get(); }

  /// A pass begins. The result is held while the pass is open, and not longer, because the optimizer keeps the model alive.
  [[nodiscard]] std::shared_ptr<BlockUpdate> begin_pass() noexcept {
    std::shared_ptr<BlockUpdate> held = update_.lock();
    if (held == nullptr) stage_.reset();
    return held;
  }
  /// `active`: it takes part in the pass.
  void set_active(bool active) {
    active_ = active ? stage_.get() : nullptr;
    if (active_ != nullptr) active_->begin();
  }
  void hold(std::shared_ptr<BlockUpdate> held) noexcept { held_ = std::move(held); }
  void let_go() noexcept { held_.reset(); }
  /// In this pass; NULL: it takes no part.
  [[nodiscard]] OptimizerStage* active() const noexcept { return active_; }

 private:
  std::weak_ptr<BlockUpdate> update_;
  std::shared_ptr<BlockUpdate> held_;
  std::unique_ptr<OptimizerStage> stage_;
  OptimizerStage* active_ = nullptr;
};

}  // namespace ddp::pass
