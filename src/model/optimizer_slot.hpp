// SPDX-License-Identifier: Apache-2.0
// The optimizers of a model, as long as they live: which has which parameters, and those that take part in its passes
// (shard, in_backward, divide_in_step). They may be made before commit. Threads: as Model.
// Tested by conformance/fused_test.cpp, conformance/several_optimizers_test.cpp and capi/optimizers_test.c.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/parameter_set.hpp"
#include "core/plan.hpp"
#include "parts/step/block_update.hpp"
#include "parts/step/optimizer_stage.hpp"

namespace ddp::model {

class Model;

class OptimizerSlot {
 public:
  explicit OptimizerSlot(Model& model) noexcept : model_(model) {}

  /// What a new optimizer of this kind has: the parameters of the list, or all that no other optimizer has. Throws
  /// INVALID_ARGUMENT or INVALID_STATE.
  [[nodiscard]] ParameterSet choose(const int32_t* list, int64_t count, const char* kind) const;
  /// From now on, as long as it lives, no other optimizer gets its parameters, and it takes part in passes if it asks for
  /// that. Local; before or after commit.
  void add(const std::shared_ptr<parts::BlockUpdate>& update);
  /// The same, of one that takes part in passes.
  void attach(const std::shared_ptr<parts::BlockUpdate>& update) { add(update); }
  /// "optimizer 1 (adam)", in the order in which those of the model were made.
  [[nodiscard]] std::string name_of(const parts::BlockUpdate& update) const;
  /// How many there are.
  [[nodiscard]] size_t count() const noexcept;
  /// Does one have this parameter?
  [[nodiscard]] bool has(int32_t parameter) const noexcept;

  /// Throws INVALID_STATE if another optimizer has left out pass `number`, after which this one has made its last step, so
  /// that their loss scales may differ.
  void require_level(const parts::BlockUpdate& update, int64_t number) const;
  /// Were all gradients of the last pass finite, if an optimizer has looked before?
  [[nodiscard]] std::optional<bool> finite() const noexcept;
  void note_finite(bool finite) noexcept;

  /// For commit: numbers such that parameters of two optimizers that share no bucket have different ones; all 0 if none has
  /// to be cut off.
  void number(std::vector<PlanItem>& items) const;
  /// For commit: what the ranks must have alike of it, as lines of text; none if all numbers are 0.
  [[nodiscard]] std::vector<std::string> describe() const;
  /// The model has passes from now on, with these buckets.
  void attach_all() const;

  /// Its part in the passes once the model is committed; NULL if `update` takes no part.
  [[nodiscard]] parts::OptimizerStage* stage_of(const parts::BlockUpdate& update) const noexcept;
  /// The step of an optimizer that takes part. Collective if sharded.
  void run_step(const parts::BlockUpdate& update, void* stream = nullptr);
  /// Does one leave each rank its slice of the gradients alone? False before commit.
  [[nodiscard]] bool is_sharded() const noexcept;
  /// Does one make its steps within passes, as things stand?
  [[nodiscard]] bool steps_in_pass() const noexcept;

 private:
  struct Entry {
    std::weak_ptr<parts::BlockUpdate> update;
    int64_t number;
  };
  [[nodiscard]] static std::string name_of(int64_t number, const char* kind);
  /// The name of the one that has this parameter.
  [[nodiscard]] std::optional<std::string> owner_of(int32_t parameter) const;
  [[nodiscard]] std::vector<std::shared_ptr<parts::BlockUpdate>> in_passes() const;

  Model& model_;
  std::vector<Entry> all_;
  int64_t next_ = 0;
  struct {
    int64_t pass = 0;  // Results::final_passes()
    bool finite = true;
  } looked_;
};

}  // namespace ddp::model
