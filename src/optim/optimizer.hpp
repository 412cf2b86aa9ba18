// SPDX-License-Identifier: Apache-2.0
// Seam 4: how parameters change. The rules (sgd, adam; custom: of the program) are classes of few functions; this is what
// they share: the walk over the parameters, the rate, step counts and groups, and how a step is decided and where it runs.
// A parameter takes no part in a step, and keeps value, state and step count, when no rank used it in the last REDUCE pass
// or when its rate factor is 0. After the first step nothing is allocated.
//
// A step is made in one of three places, with the same bits: here, over whole parameters; sharded, over the own slices,
// which are then published (parts/step/optimizer_stage.hpp); or in the pass, bucket by bucket. Clipping by norm, a check for
// numbers that are not finite and a dynamic loss scale need all gradients before the first change; then a step in the pass
// becomes one at ddp_optimizer_step.
//
// Blocks of parameters on a GPU are noted, and flush launches them in the order of a stream (device/updates.hpp). A step
// that may be left out, or is captured into a graph, is decided and counted on the GPU if all parameters are there
// (optim/gpu_steps.hpp); then the host learns how it went when it is asked. The host waits for a GPU in a step only where
// it must decide itself.
// Tested by unit/optim/optimizer_test.cpp, conformance/fused_test.cpp, gpu_host/optimizer_test.cpp.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/parameter_set.hpp"
#include "ddp/optimizer.h"
#include "device/updates.hpp"
#include "model/model.hpp"
#include "model/norms.hpp"
#include "model/replica_state.hpp"
#include "optim/gpu_steps.hpp"
#include "optim/masters.hpp"
#include "optim/optimizer_state.hpp"
#include "optim/param_groups.hpp"
#include "optim/policy.hpp"
#include "optim/progress.hpp"
#include "optim/undo.hpp"
#include "parts/step/block_update.hpp"
#include "parts/step/optimizer_stage.hpp"

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
  float* master = nullptr;  // of an F16 or BF16 parameter: its F32 copy, which the rule works on, or NULL
};

/// As devices take it; nothing is left for one to decide.
[[nodiscard]] device::GradShape for_devices(const cpu::GradShape& shape) noexcept;

class Optimizer : public model::ReplicaState, public parts::BlockUpdate {
 public:
  /// `rule`: its kind().
  Optimizer(std::shared_ptr<model::Model> model, ParamGroups schedule, const ddp_optimizer_options& options,
            const char* rule);

  /// It is new: takes what all optimizers of the model have alike from one that there is.
  void join_others();

  /// One update of every used parameter. `stream`: as for a model. Memory is allocated before the first parameter changes.
  void step(void* stream = nullptr);
  /// Is a step collective?
  [[nodiscard]] bool steps_together() const { return policy_.shard || looks_beyond_slices(); }

  void set_rate(double rate);
  [[nodiscard]] double rate() const noexcept { return progress_.groups.rate(); }
  /// This, the loss scale, the steps that were skipped and the norm may wait for a GPU that has counted them.
  [[nodiscard]] int64_t step_count() const { return progress().groups.step_count(); }
  void set_parameter_options(int32_t index, double weight_decay, double rate_scale);
  void set_loss_scale(const ddp_loss_scale_options& options);
  [[nodiscard]] double loss_scale() const { return progress().loss_scale.scale(); }
  /// The loss scale into one element, F32 or F64, of host memory or in the order of a GPU's stream. Throws INVALID_ARGUMENT
  /// or INVALID_STATE.
  void copy_loss_scale(const Tensor& to, void* stream);
  [[nodiscard]] int64_t skipped_count() const { return progress().skipped; }
  /// Of the last step that looked at the whole gradient; -1: none did.
  [[nodiscard]] double grad_norm() const;
  /// Its part in the model's passes, to be attached; NULL: it has none.
  [[nodiscard]] parts::BlockUpdate* in_passes() noexcept { return request().takes_part() ? this : nullptr; }
  [[nodiscard]] model::Model& model() const noexcept { return *model_; }

  [[nodiscard]] bool is_replicated() const noexcept final { return !policy_.shard; }
  [[nodiscard]] parts::StepRequest request() const noexcept final;
  void prepare_blocks() final;
  [[nodiscard]] bool takes_part(int32_t index) const noexcept final;
  void update_block(int32_t index, int64_t first, int64_t count) noexcept final;
  [[nodiscard]] bool restore() noexcept final;
  void count_step() final;
  [[nodiscard]] bool awaits_step() const noexcept final;
  void flush(void* stream) final;

 protected:
  /// The state arrays of the rule; NULL: it has none.
  [[nodiscard]] virtual OptimizerState* store() noexcept { return nullptr; }
  /// What is noted of blocks that do not change at once.
  [[nodiscard]] virtual device::Updates& updates() noexcept = 0;
  /// Does the rule need each parameter, with its state, as one block?
  [[nodiscard]] virtual bool takes_whole_tensors() const noexcept { return false; }
  /// What a GPU makes a rule's scalars from; none: it cannot.
  [[nodiscard]] virtual std::optional<ddp_gpu_rule_options> gpu_rule() const noexcept { return std::nullopt; }
  /// Before every step: prepares the rule's data other than its state. Throws OUT_OF_MEMORY or NOT_SUPPORTED.
  virtual void prepare_rule() {}
  /// Change a block, or note it. Throws nothing; but a rule of the program may end the thread.
  virtual void update(const Block& block, const device::GradShape& shape) = 0;

  [[nodiscard]] const ParameterSet& parameters() const noexcept final { return parameters_; }
  /// Where its parameters are: on the GPU, if one is.
  [[nodiscard]] const device::Device& home() const noexcept;
  [[nodiscard]] const ParamGroups& schedule() const noexcept { return progress_.groups; }
  [[nodiscard]] const Policy& policy() const noexcept { return policy_; }

  /// Fields of schedule, policy and loss scale.
  [[nodiscard]] Fields common_fields() const;
  struct Common {
    Progress progress;
    Policy policy;
  };
  /// Throws MISMATCH or IO without any effect.
  [[nodiscard]] Common read_common(const Fields& fields) const;
  void set_common(Common common);

  /// The tensors of the store's arrays, named by `fields`, and the master copies.
  [[nodiscard]] std::vector<model::StateTensor> named_tensors(const std::vector<std::string>& fields);

 private:
  // As a BlockUpdate or ReplicaState alone.
  [[nodiscard]] int64_t steps() const final { return step_count(); }
  [[nodiscard]] int64_t optimizer_steps() const final { return step_count(); }
  void tear() noexcept final { model().values().tear(); }
  void lose_parts() noexcept final;
  /// Masters may have been loaded, with more digits than the parameters have.
  [[nodiscard]] bool is_initial() const final { return step_count() == 0 && !policy_.master_weights; }
  void reopen() final;
  void follow_loaded_values(const std::vector<bool>& loaded) final;
  void share(const std::map<std::string, std::string>& fields) final;
  [[nodiscard]] const char* rule_name() const noexcept final { return kind(); }
  [[nodiscard]] int64_t last_pass() const noexcept final { return std::max(stepped_, made_at_); }
  [[nodiscard]] bool took_step() const noexcept final;
  void divide_and_flush(void* stream, double divisor) final;
  [[nodiscard]] bool keeps_slices() const noexcept final { return undo_.saves && undo_.sliced; }
  [[nodiscard]] std::vector<Beside> beside(int32_t index) final;

  [[nodiscard]] bool divides() const noexcept;
  /// Do its steps look at gradients of the model's other optimizers, of which one has slices?
  [[nodiscard]] bool looks_beyond_slices() const noexcept;
  [[nodiscard]] bool looks_beyond() const noexcept;
  void share_scale();
  void require_outside_made_step(const char* function, bool updates) const;
  [[nodiscard]] int64_t passes() const;
  void require_group() const;
  void require_new_gradients() const;
  void allocate();
  void allocate_undo();
  void keep_sides() noexcept;
  /// The counts, also if a GPU has them; then the host waits.
  [[nodiscard]] const Progress& progress() const;
  /// change(), which is of the host, to counts that a GPU may have.
  template <class Change>
  void change_progress(const Change& change);
  void keep_counts();
  [[nodiscard]] OwnedParts owned(int32_t index) const noexcept;
  /// `norms`: of all devices, or of one.
  template <class Norms>
  void add_owned_grad(int32_t index, Norms& norms) const;
  /// Does its gradient count in this step's norm?
  [[nodiscard]] bool counts(int32_t index) const noexcept;
  [[nodiscard]] bool decides_in_stream() const noexcept;
  /// Is all that changes on one GPU, by a rule that it knows?
  [[nodiscard]] bool is_gpus_alone() const noexcept;
  /// Does the GPU decide about the next step?
  [[nodiscard]] bool is_planned() const noexcept;
  void require_capturable() const;
  void prepare_gpu();
  void prepare_undo();
  void make_planned_step(void* stream);
  void plan_and_update(void* stream);
  [[nodiscard]] const int64_t* start_sum_of_squares(void* stream);
  void make_any_step(void* stream);
  void make_step(void* stream);
  /// False: the step is left out.
  [[nodiscard]] bool decide_step(void* stream);
  [[nodiscard]] Decision look_at_gradients(void* stream);
  [[nodiscard]] bool is_finite(int32_t index, void* stream);
  [[noreturn]] void report_nonfinite(void* stream);
  void update_all(void* stream);
  void change(int32_t index, int64_t first, int64_t count);
  [[nodiscard]] Block block_of(int32_t index, int64_t first, int64_t count) const noexcept;
  void add_tensor(std::vector<model::StateTensor>& tensors, const OptimizerState& from, int32_t index, size_t array,
                  const std::string& field) const;

  const std::shared_ptr<model::Model> model_;
  mutable Progress progress_;  // as the host knows it
  Policy policy_;
  ParameterSet parameters_;
  Masters masters_;
  struct {
    Undo all;
    bool sliced = false;  // of the own slices alone
    bool saves = false;   // blocks are saved before they change
  } undo_;
  std::vector<OwnedSpan> whole_;           // each parameter, for who owns all of it
  std::unique_ptr<GpuDecision> decision_;  // NULL: no device has had to decide about a step
  std::unique_ptr<GpuSteps> gpu_steps_;    // NULL: none is to count steps
  model::Norms norms_;
  device::GradShape shape_{};     // of the step under way; its gate: what the device has decided, or NULL
  bool planned_ = false;          // the GPU decides about the step under way
  int64_t stepped_ = 0;           // Results::final_passes() at the last step
  int64_t made_at_ = 0;           // the same when it was made, or got its state from elsewhere
  bool norm_is_decided_ = false;  // if progress() has no norm, decision_ has that of the last step
};

}  // namespace ddp::optim
