// What the optimizers share: the walk over the parameters, the rate, step counts and groups, and how a step is decided and
// where it runs.
// A parameter takes no part in a step, and keeps value, state and step count, when no rank used it in the last REDUCE pass
// or when its rate factor is 0. After the first step nothing is allocated.
//
// A step is made in one of three places, with the same bits: here, over whole parameters; sharded, over the own slices,
// which are then published (pass/optimizer_stage.hpp); or in the pass, bucket by bucket. Clipping by norm, a check for
// numbers that are not finite and a dynamic loss scale need all gradients before the first change; then a step in the pass
// becomes one at ddp_optimizer_step.
//
// Blocks of parameters on a GPU are noted, and flush launches them in the order of a stream (device/updates.hpp). The
// host waits for a GPU only where it must decide about a step itself (optim/gpu_decision.hpp).
// Tested by unit/optim/optimizer_test.cpp, conformance/fused_test.cpp, gpu_host/optimizer_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/norms.hpp"
#include "device/updates.hpp"
#include "optim/gpu_decision.hpp"
#include "optim/masters.hpp"
#include "optim/optimizer.hpp"
#include "optim/optimizer_state.hpp"
#include "optim/param_groups.hpp"
#include "optim/policy.hpp"
#include "optim/undo.hpp"
#include "pass/block_update.hpp"
#include "pass/optimizer_stage.hpp"

namespace ddp::optim {

/// Elements of a parameter that a rule changes now.
struct Block {
  int32_t index = 0;
  const Parameter* parameter = nullptr;
  int64_t first = 0;
  int64_t count = 0;
  ddp_dtype dtype = DDP_F32;  // of the two arrays below
  void* value = nullptr;
  const void* grad = nullptr;
  float* master = nullptr;  // of an F16 or BF16 parameter: its F32 copy, which the rule works on; NULL: there is none
};

/// As devices take it; nothing is left for one to decide.
[[nodiscard]] device::GradShape for_devices(const cpu::GradShape& shape) noexcept;

class BuiltinOptimizer : public Optimizer, public pass::BlockUpdate {
 public:
  BuiltinOptimizer(std::shared_ptr<model::Model> model, ParamGroups schedule, const Policy& policy = Policy{})
      : Optimizer(std::move(model)), schedule_(std::move(schedule)), policy_(policy) {}

  /// Memory is allocated before the first parameter changes.
  using Optimizer::step;
  void step(void* stream) final;

  void set_rate(double rate) final;
  [[nodiscard]] double rate() const noexcept final { return schedule_.rate(); }
  [[nodiscard]] int64_t step_count() const noexcept final { return schedule_.step_count(); }
  void set_group(int32_t index, double weight_decay, double rate_scale) final;
  void set_loss_scale(const ddp_loss_scale_options& options) final;
  [[nodiscard]] double loss_scale() const noexcept final { return loss_scale_.scale(); }
  [[nodiscard]] int64_t skipped_count() const noexcept final { return skipped_; }
  [[nodiscard]] double grad_norm() const final { return norm_is_decided_ ? decision_->norm() : norm_; }
  [[nodiscard]] pass::BlockUpdate* in_passes() noexcept final {
    return policy_.shard || policy_.in_backward ? this : nullptr;
  }

  [[nodiscard]] bool is_replicated() const noexcept final { return !policy_.shard; }
  [[nodiscard]] pass::StepRequest request() const noexcept final;
  void prepare_blocks() final;
  [[nodiscard]] bool takes_part(int32_t index) const noexcept final;
  void update_block(int32_t index, int64_t first, int64_t count) noexcept final;
  [[nodiscard]] bool restore() noexcept final;
  void tear() noexcept final { model().values().tear(); }
  void count_step() noexcept final { count_all(); }
  void lose_parts() noexcept final;
  void follow_loaded_values(const std::vector<bool>& loaded) final;
  void flush(void* stream) final;

 protected:
  /// The state arrays of the rule; NULL: it has none.
  [[nodiscard]] virtual OptimizerState* store() noexcept { return nullptr; }
  /// What is noted of blocks that do not change at once.
  [[nodiscard]] virtual device::Updates& updates() noexcept = 0;
  /// Does the rule need each parameter, with its state, as one block?
  [[nodiscard]] virtual bool takes_whole_tensors() const noexcept { return false; }
  /// Before every step: what the rule needs besides its state. Throws OUT_OF_MEMORY or NOT_SUPPORTED.
  virtual void prepare_rule() {}
  /// Change a block, or note it. Throws nothing; but a rule of the program may end the thread.
  virtual void update(const Block& block, const device::GradShape& shape) = 0;

  [[nodiscard]] const ParamGroups& schedule() const noexcept { return schedule_; }
  [[nodiscard]] const Policy& policy() const noexcept { return policy_; }

  /// Fields of schedule, policy and loss scale.
  [[nodiscard]] Fields common_fields() const;
  struct Common {
    ParamGroups schedule;
    Policy policy;
    LossScale loss_scale;
    int64_t skipped;
  };
  /// Throws MISMATCH or IO without any effect.
  [[nodiscard]] Common read_common(const Fields& fields) const;
  void set_common(Common common) noexcept;

  /// The tensors of the store's arrays, named by `fields`, and the master copies.
  [[nodiscard]] std::vector<model::StateTensor> named_tensors(const std::vector<std::string>& fields);

 private:
  void require_outside_made_step(const char* function) const;
  void require_new_gradients() const;
  void allocate();
  [[nodiscard]] OwnedParts owned(int32_t index) const noexcept;
  /// `norms`: of all devices, or of one.
  template <class Norms>
  void add_owned_grad(int32_t index, Norms& norms) const;
  /// Does its gradient count in this step's norm?
  [[nodiscard]] bool counts(int32_t index) const noexcept;
  [[nodiscard]] bool decides_in_stream() const noexcept;
  /// False: the step is left out.
  [[nodiscard]] bool decide_step(void* stream);
  [[nodiscard]] Decision look_at_gradients(void* stream);
  [[nodiscard]] bool is_finite(int32_t index, void* stream);
  [[noreturn]] void report_nonfinite(void* stream);
  void update_all(void* stream);
  void change(int32_t index, int64_t first, int64_t count);
  [[nodiscard]] Block block_of(int32_t index, int64_t first, int64_t count) const noexcept;
  void count_all() noexcept;
  void add_tensor(std::vector<model::StateTensor>& tensors, const OptimizerState& from, int32_t index, size_t array,
                  const std::string& field) const;

  ParamGroups schedule_;
  Policy policy_;
  LossScale loss_scale_;
  Masters masters_;
  Undo undo_;
  std::vector<OwnedSpan> whole_;           // each parameter, for who owns all of it
  std::unique_ptr<GpuDecision> decision_;  // NULL: no device has had to decide about a step
  device::Norms norms_;
  device::GradShape shape_{};  // of the step under way; its gate: what the device has decided, or NULL
  bool undoes_ = false;        // blocks are saved before they change
  int64_t stepped_ = 0;        // Results::final_passes() at the last step
  int64_t skipped_ = 0;
  double norm_ = -1;              // of the last step that needed it; -1: none did
  bool norm_is_decided_ = false;  // that step's norm has to be fetched
};

}  // namespace ddp::optim
