// SPDX-License-Identifier: Apache-2.0
// The part of passes that an optimizer is, if there is one and it still lives: its stage (optimizer_stage.hpp) does the
// work. Threads: as PassPart. Tested by conformance/fused_test.cpp.
#pragma once

#include <memory>
#include <utility>

#include "parts/step/block_update.hpp"
#include "parts/step/optimizer_stage.hpp"
#include "pass/part.hpp"

namespace ddp::parts {

class AttachedOptimizer final : public pass::PassPart {
 public:
  /// From the next pass on, as long as it lives.
  void attach(std::weak_ptr<BlockUpdate> update, std::unique_ptr<OptimizerStage> stage) noexcept {
    stage_ = std::move(stage);
    update_ = std::move(update);
  }
  /// NULL if there is none.
  [[nodiscard]] OptimizerStage* stage() const noexcept { return update_.expired() ? nullptr : stage_.get(); }

  [[nodiscard]] pass::Traits traits() const noexcept override;
  /// A step that a pass has made must be ended before the next pass whose gradients are final.
  void require(ddp_pass mode, pass::Role role) const override;
  void begin(pass::Opening& opening) override;
  [[nodiscard]] collective::BucketOperation& choose(size_t bucket, collective::BucketOperation& usual) noexcept override;
  void started(size_t bucket, collective::BucketOperation& reduction, collective::ProgressQueue& queue) override;
  [[nodiscard]] pass::Vote vote() const noexcept override;
  void order() override;
  [[nodiscard]] bool conclude(const pass::Verdict& verdict) override;
  [[nodiscard]] bool answer(const pass::Verdict& verdict) override;
  void report() override;
  void broken() override;
  void closed(const pass::Closing&) noexcept override { held_.reset(); }
  void left_open() noexcept override { held_.reset(); }
  void changed(pass::Change what) noexcept override;
  [[nodiscard]] bool set_address(size_t bucket, int32_t piece, std::byte* data) noexcept override;

 private:
  std::weak_ptr<BlockUpdate> update_;
  /// While a pass is open, and not longer: whoever holds the optimizer holds the model.
  std::shared_ptr<BlockUpdate> held_;
  std::unique_ptr<OptimizerStage> stage_;  // also if the optimizer does not live any more, until the next pass
  OptimizerStage* active_ = nullptr;       // in this pass; NULL: it takes no part
};

}  // namespace ddp::parts
