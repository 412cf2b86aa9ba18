// SPDX-License-Identifier: Apache-2.0
// The part of passes that the optimizers are which asked for one (shard, in_backward, divide_in_step), as long as they live.
// Each has the buckets of its parameters, and a stage (optimizer_stage.hpp) that does the work. They are asked in the order
// in which they were attached, the same on all ranks. Steps that a pass has made count together, once all are made: if the
// group breaks before, all are taken back.
// Threads: as PassPart. Tested by conformance/fused_test.cpp and conformance/several_optimizers_test.cpp.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parts/step/block_update.hpp"
#include "parts/step/optimizer_stage.hpp"
#include "pass/part.hpp"

namespace ddp::parts {

class AttachedOptimizers final : public pass::PassPart {
 public:
  /// Of passes with this number of buckets.
  explicit AttachedOptimizers(size_t buckets) : places_(buckets) {}

  /// From the next pass on, as long as it lives. `buckets`: the numbers of those that the stage has, in its order. `name`:
  /// in errors.
  void attach(std::weak_ptr<BlockUpdate> update, std::string name, std::vector<size_t> buckets,
              std::unique_ptr<OptimizerStage> stage);
  /// NULL if it is not attached.
  [[nodiscard]] OptimizerStage* stage_of(const BlockUpdate& update) const noexcept;
  /// The stage of the optimizer that has this parameter, if it lives.
  [[nodiscard]] OptimizerStage* stage_of(int32_t parameter) const noexcept;
  /// Does `which(stage)` say so of one that lives?
  template <class Which>
  [[nodiscard]] bool any(const Which& which) const {
    return std::any_of(all_.begin(), all_.end(),
                       [&](const Attached& each) { return !each.update.expired() && which(*each.stage); });
  }

  /// For each stage with values that come late, also of an optimizer that does not live any more.
  template <class Do>
  void each_late(const Do& what) const {
    for (const Attached& each : all_)
      if (LateValues* const late = each.stage->late_values(); late != nullptr) what(*late);
  }

  [[nodiscard]] pass::Traits traits() const noexcept override;
  /// A step that a pass has made must be ended before the next pass whose gradients are final.
  void require(ddp_pass mode, pass::Role role) const override;
  void begin(pass::Opening& opening) override;
  [[nodiscard]] collective::BucketOperation& choose(size_t bucket, collective::BucketOperation& usual) noexcept override;
  void started(size_t bucket, collective::BucketOperation& reduction, collective::ProgressQueue& queue) override;
  [[nodiscard]] pass::Left left(size_t bucket) const noexcept override;
  void order() override;
  [[nodiscard]] bool conclude(const pass::Verdict& verdict) override;
  [[nodiscard]] bool answer(const pass::Verdict& verdict) override;
  void report() override;
  void broken() override;
  void closed(const pass::Closing&) noexcept override { release(); }
  void left_open() noexcept override { release(); }
  void await_values() override;
  void changed(pass::Change what) noexcept override;
  [[nodiscard]] bool set_address(size_t bucket, int32_t piece, std::byte* data) noexcept override;

 private:
  struct Attached {
    std::weak_ptr<BlockUpdate> update;
    std::string name;
    std::vector<size_t> buckets;
    std::unique_ptr<OptimizerStage> stage;  // also if the optimizer does not live any more, until the next pass
    /// While a pass is open, and not longer: whoever holds the optimizer holds the model.
    std::shared_ptr<BlockUpdate> held{};
    bool is_active = false;  // in this pass
  };
  /// A bucket of a stage.
  struct Place {
    OptimizerStage* stage = nullptr;  // NULL: of no optimizer that is attached
    size_t bucket = 0;                // in the stage
    bool is_active = false;
  };
  void begin(Attached& each, const pass::Opening& opening);
  void find_places() noexcept;
  void release() noexcept;

  std::vector<Attached> all_;
  std::vector<Place> places_;  // by bucket of the pass
};

}  // namespace ddp::parts
