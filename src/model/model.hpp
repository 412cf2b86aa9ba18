// A model: the table of what was lent, agreed on by all ranks, with the machinery of its passes.
// Threads: one at a time, but for those that mark.
// Tested by conformance/ and capi/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/exact_sum.hpp"
#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/backward.h"
#include "ddp/model.h"
#include "ddp/uneven.h"
#include "device/norms.hpp"
#include "group/group.hpp"
#include "pass/hook.hpp"

namespace ddp::pass {
class BlockUpdate;
class OptimizerStage;
class Pass;
class JoinHeader;
}  // namespace ddp::pass
namespace ddp {
class Ownership;
}  // namespace ddp

namespace ddp::model {

class GradientWalk;
class ReplicaState;

/// `stream`: a cudaStream_t in whose order tensors on a GPU are read and written; it means nothing to others.
class Model {
 public:
  enum class Phase { kBuilding, kReady, kOpen };

  Model(std::shared_ptr<group::Group> group, const ddp_model_options& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] group::Group& group() const noexcept { return *group_; }
  [[nodiscard]] Phase phase() const noexcept;
  /// Which of the group's models it is, the same on all ranks; 0 before the ranks have agreed on it.
  [[nodiscard]] uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const Parameters& table() const noexcept { return table_; }
  [[nodiscard]] const ddp_model_options& options() const noexcept { return options_; }
  [[nodiscard]] std::map<std::string, std::string>& metadata() noexcept { return metadata_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

  int32_t add_parameter(std::string name, const Tensor& value, const Tensor* grad);
  int32_t add_buffer(std::string name, const Tensor& value);
  void set_hook(pass::Hook hook);
  void commit(void* stream = nullptr);
  void set_grad(int32_t index, void* data);

  void begin_backward(ddp_pass mode);
  void mark_ready(int32_t index, void* stream = nullptr);
  void mark_range_ready(int32_t index, int64_t first, int64_t count, void* stream = nullptr);
  void mark_unused(int32_t index);
  void end_backward(void* stream = nullptr);
  /// For a model whose hook is kPulled; see Pass.
  [[nodiscard]] std::shared_ptr<pass::HookBucket> next_bucket(bool rest);
  void finish_bucket(const std::optional<Error>& problem);

  // For ranks with unequal data (ddp/uneven.h).
  void set_weight(double weight);
  void set_last_pass();
  void skip_backward(void* stream = nullptr);
  void abandon_backward(std::string reason, void* stream = nullptr);
  void fill_report(ddp_pass_report& report) const;
  void join(void* stream = nullptr);
  /// The first line of what a joined rank has no part in: throws INVALID_STATE on all others while there is one. Collective
  /// with uneven_inputs once committed, else nothing.
  void require_everybody(const char* function);
  void answer_sync_buffers(const pass::JoinHeader& roll, void* stream);
  [[nodiscard]] pass::Pass& pass() const noexcept { return *pass_; }

  void sync_buffers(int32_t root, void* stream = nullptr);
  void average_parameters(void* stream = nullptr);
  void check_replicas(void* stream = nullptr);
  [[nodiscard]] uint64_t content_hash() const;

  /// State that is to stay as equal as the parameters (an optimizer's); the same ones in the same order on all ranks. Any
  /// thread.
  void keep_equal(std::weak_ptr<ReplicaState> state);
  [[nodiscard]] std::vector<std::shared_ptr<ReplicaState>> kept_equal();
  /// This rank loaded what others may not have; commit gives rank 0's to everybody.
  void set_loaded() noexcept { has_loaded_ = true; }

  /// Names of the last load's differences; empty after one that was strict.
  struct LoadReport {
    std::vector<std::string> missing;     // the model has it, the checkpoint not
    std::vector<std::string> unexpected;  // the other way round
  };
  void set_load_report(LoadReport report) noexcept { load_report_ = std::move(report); }
  [[nodiscard]] const LoadReport& load_report() const noexcept { return load_report_; }
  /// An optimizer takes part in the passes; one at a time. Local; before or after commit.
  void attach(const std::shared_ptr<pass::BlockUpdate>& update);
  /// Its part once the model is committed; NULL if `update` is not attached.
  [[nodiscard]] pass::OptimizerStage* stage_of(const pass::BlockUpdate& update) const noexcept;
  /// The step of the attached optimizer. Collective if sharded.
  void run_step(const pass::BlockUpdate& update, void* stream = nullptr);
  /// Does any attached optimizer leave each rank its slice of the gradients alone?
  [[nodiscard]] bool is_sharded() const noexcept;

  void zero_grad(void* stream = nullptr);
  /// Collective if an attached optimizer is sharded. The host waits for the stream if gradients lie on a GPU.
  [[nodiscard]] double grad_norm(double p, void* stream = nullptr);
  void scale_grad(double factor, void* stream = nullptr);
  /// Returns the norm before.
  double clip_grad_norm(double max_norm, double p, void* stream = nullptr);
  void clip_grad_value(double limit, void* stream = nullptr);

  /// Has a REDUCE pass ended well? Before one, every parameter counts as used.
  [[nodiscard]] bool has_reduced() const noexcept;
  /// Did any rank contribute to it in the last REDUCE pass?
  [[nodiscard]] bool was_used(int32_t index) const noexcept;

  void fill_stats(ddp_model_stats& stats) const;
  [[nodiscard]] std::string describe_plan() const;

  /// Throws INVALID_STATE unless committed with no pass open; `function` names the caller in the text.
  void require_ready(const char* function) const;
  /// Throws INVALID_STATE while a pass is open.
  void require_no_pass(const char* function) const;
  /// Throws INVALID_STATE when the gradients in memory are not to be stepped with: not reduced, of a void pass, or, if
  /// `used_in` is what final_passes() was then, used before. Nothing is refused once a pass was captured into a graph, which
  /// makes gradients at any time.
  void require_final_gradients(const char* function, int64_t used_in) const;
  /// Throws INVALID_STATE if only a part of a change has reached the parameters or the optimizer.
  void require_whole(const char* function) const;
  /// Throws INVALID_STATE after a pass that has made the optimizer's step, until ddp_optimizer_step; `why`: what the call
  /// would miss.
  void require_no_made_step(const char* function, const char* why) const;
  /// Throws INVALID_STATE while averages stand in the place of the parameters; but not for `owner`.
  void require_own_values(const char* function, const void* owner = nullptr) const;
  /// Averages of `owner` stand in the place of the parameters; NULL: no longer.
  void set_values_of(const void* owner) noexcept { values_of_ = owner; }
  [[nodiscard]] const void* values_of() const noexcept { return values_of_; }
  /// Passes whose gradients are final, so far.
  [[nodiscard]] int64_t final_passes() const noexcept;
  /// Each rank's gradients are complete in its own slice only.
  [[nodiscard]] bool has_sliced_gradients() const noexcept;

  /// What only a part of a change has reached, so that nothing may go on from it.
  struct Torn {
    bool parameters = false;
    bool optimizer = false;
  };
  /// Parameters and the optimizer's state are changed in part, for good.
  void tear() noexcept { torn_ = Torn{true, true}; }
  /// A load begins to change parameters, and the optimizer's state if `optimizer`. Returns what was torn before.
  [[nodiscard]] Torn begin_load(bool optimizer) noexcept;
  /// It has changed all that it brings; `torn`: what is still torn.
  void end_load(const Torn& torn) noexcept;

  /// The model's handle is gone: lent memory is not used any more.
  void close() noexcept;

 private:
  [[nodiscard]] bool has_gpu_tensors() const noexcept;
  void require_live(const char* function) const;
  void require_pulled(const char* function) const;
  void require_building(const char* function) const;
  void require_committed(const char* function) const;
  void sync_buffers_with_joined(int32_t root, void* stream);
  void send_buffers(int32_t root, void* stream);
  void allocate_grads(const Plan& plan);
  [[nodiscard]] std::byte* alloc_grads_beside(const Tensor& value, int64_t bytes);
  [[nodiscard]] pass::Pass& open_pass() const;
  void check_drift_when_due(void* stream);
  [[nodiscard]] GradientWalk& walk();
  [[nodiscard]] device::Norms& norms_of_gradients();
  [[nodiscard]] double largest_gradient(void* stream);
  [[nodiscard]] ExactSum sum_of_gradients(int32_t p, void* stream);
  void check_drift(void* stream);
  void distribute_loaded(void* stream);
  void require_host_parameters() const;
  void refuse_capture(const char* function, void* stream);
  std::shared_ptr<group::Group> group_;
  ddp_model_options options_;
  Parameters table_;
  pass::Hook hook_;
  std::map<std::string, std::string> metadata_;
  std::vector<void*> grad_memory_;  // of the gradients that libddp owns, from the group
  std::weak_ptr<pass::BlockUpdate> attached_;
  std::unique_ptr<pass::Pass> pass_;    // from commit on
  std::unique_ptr<GradientWalk> walk_;  // NULL: not needed yet
  ddp_pass mode_ = DDP_PASS_REDUCE;     // of the last pass
  bool has_loaded_ = false;
  uint64_t number_ = 0;
  LoadReport load_report_;
  int64_t checks_ = 0;
  int64_t repairs_ = 0;
  std::mutex keeping_;  // guards kept_equal_: their owners are destroyed on any thread
  std::vector<std::weak_ptr<ReplicaState>> kept_equal_;
  Torn torn_;
  const void* values_of_ = nullptr;  // averages in the place of the parameters
  bool closed_ = false;
};

/// The sum over all ranks, on all ranks. Collective.
void join_sums(group::Group& group, ExactSum& sum);

}  // namespace ddp::model
