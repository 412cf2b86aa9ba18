// SPDX-License-Identifier: Apache-2.0
// A model: the table of lent tensors, agreed on by all ranks, with its passes. What else works on a model is built on this:
// each idea has a class of its own that the model holds and does not know (gradients, replicas, the optimizers), and code
// without state is a function on a model (uneven.hpp, sync_buffers.hpp, average.hpp, requirements.hpp). create.cpp makes a
// model and commits it. Threads: one at a time, except those that mark. Tested by conformance/ and capi/.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/backward.h"
#include "ddp/model.h"
#include "group/group.hpp"
#include "model/values.hpp"
#include "os/memory.hpp"
#include "parts/hooks/hook.hpp"
#include "pass/pass.hpp"

namespace ddp::checkpoint {
class FolderLock;
}  // namespace ddp::checkpoint
namespace ddp::parts {
class BatchParts;
class ModelPass;
}  // namespace ddp::parts
namespace ddp::model {

class Gradients;
class ModelMemory;
class OptimizerSlot;
class Rejoin;
class Replicas;

/// Names of a load's differences; empty after one that was strict.
struct LoadReport {
  std::vector<std::string> missing;     // the model has it, the checkpoint not
  std::vector<std::string> unexpected;  // the other way round
  std::optional<std::string> file;      // "": a stream
  std::vector<std::string> skipped;     // newer files that were not valid, and why
};

/// Of the saves of a model.
struct SaveInfo {
  std::string unfinished;  // temporary file of a save that did not end here: a rank that was replaced may still hold it
  std::string job;         // in the locks of folders; the same on all ranks
  std::shared_ptr<checkpoint::FolderLock> lock;  // on the rank that writes
};

/// What a model has to do with checkpoints besides its tensors.
struct CheckpointInfo {
  std::map<std::string, std::string> metadata;  // the program's, saved and loaded
  LoadReport last_load;
  SaveInfo saves;
};

/// `stream`: a cudaStream_t in whose order tensors on a GPU are read and written; it means nothing to others.
class Model {
 public:
  Model(std::shared_ptr<group::Group> group, const ddp_model_options& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] group::Group& group() const noexcept { return *group_; }
  [[nodiscard]] const ddp_model_options& options() const noexcept { return options_; }
  [[nodiscard]] const parts::Hook& hook() const noexcept { return hook_; }
  [[nodiscard]] const Parameters& table() const noexcept { return table_; }
  /// Which of the group's models it is, the same on all ranks; 0 before the ranks have agreed on it.
  [[nodiscard]] uint64_t number() const noexcept { return number_; }
  [[nodiscard]] bool is_committed() const noexcept { return passes_.pass != nullptr; }

  /// kLater: its gradient is given by Gradients::set().
  enum class Gradient { kNow, kLater };
  int32_t add_parameter(std::string name, const Tensor& value, const Tensor* grad, Gradient comes = Gradient::kNow);
  int32_t add_buffer(std::string name, const Tensor& value);
  void set_hook(parts::Hook hook);
  void commit(void* stream = nullptr);
  /// The model's handle was destroyed: lent memory is not used any more.
  void close() noexcept;

  void begin_backward(ddp_pass mode);
  void end_backward(void* stream = nullptr);
  /// Where gradients are marked, and what the passes have come to. Throws INVALID_STATE unless committed.
  [[nodiscard]] pass::Pass& pass() const;
  /// The same with all parts.
  [[nodiscard]] parts::ModelPass& passes() const;
  /// The program's plan of buckets, by position. None: the library makes the plan.
  [[nodiscard]] const GivenBuckets& buckets() const noexcept { return buckets_; }

  [[nodiscard]] Gradients& gradients() noexcept { return *held_.gradients; }
  [[nodiscard]] Replicas& replicas() noexcept { return *held_.replicas; }
  [[nodiscard]] Values& values() noexcept { return values_; }
  [[nodiscard]] OptimizerSlot& optimizer_slot() noexcept { return *held_.optimizers; }
  [[nodiscard]] CheckpointInfo& checkpoint_info() noexcept { return checkpoint_info_; }

  // These throw INVALID_STATE; `function` names the caller in the text.
  /// After close().
  void require_live(const char* function) const;
  /// Unless committed with no pass open.
  void require_ready(const char* function) const;
  /// Unless committed.
  void require_committed(const char* function) const;
  /// While a pass is open.
  void require_no_pass(const char* function) const;

 private:
  friend class Gradients;
  friend class Rejoin;
  friend class Reopened;
  int32_t add_without_grad(std::string name, const Tensor& value);
  void require_building(const char* function) const;
  void require_host_parameters() const;
  /// Of these parameters, by position; `all`: of the model.
  [[nodiscard]] Plan plan(const std::vector<int32_t>& present, bool all) const;
  void commit_now(void* stream);
  /// The ranks agree on the model, and passes can be made. Gives as Replicas::make_equal(). Collective.
  int32_t join_group(void* stream);
  /// Memory that libddp provides, if it has not done so yet.
  void allocate(const Plan& plan, void* stream);
  void look_at_layout(const Plan& plan);
  [[nodiscard]] std::vector<int32_t> added_since(int32_t first) const;

  std::shared_ptr<group::Group> group_;
  ddp_model_options options_;
  Parameters table_;
  parts::Hook hook_;
  uint64_t number_ = 0;
  GivenBuckets buckets_;
  struct Memory {
    std::unique_ptr<ModelMemory> blocks{};
    std::vector<os::LargeArray> stand_ins{};  // for gradients that come later
    int32_t parameters = -1;                  // that have been added when it was allocated last; -1: nothing is allocated
    uint64_t layout = 0;                      // hash of the plan by which it is laid out; 0: of several
  } memory_;
  /// What works on the model, and is made with it.
  struct Held {
    std::unique_ptr<Gradients> gradients{};
    std::unique_ptr<Replicas> replicas{};
    std::unique_ptr<OptimizerSlot> optimizers{};
  } held_;
  Values values_{*this};
  CheckpointInfo checkpoint_info_;
  std::function<void(void* stream)> after_reduction_;  // the ranks do it together when a pass that reduced has ended
  /// From commit on; destroyed before the gradients that they reduce.
  struct Passes {
    pass::Pass* pass = nullptr;  // this and the next are in `all`
    parts::BatchParts* batch = nullptr;
    std::shared_ptr<parts::ModelPass> all{};  // goes last, when nobody finds it any more
  } passes_;
  ddp_pass mode_ = DDP_PASS_REDUCE;  // of the last pass
  bool closed_ = false;
  std::shared_ptr<Rejoin> rejoin_;  // from commit on, in a group that can recover
};

}  // namespace ddp::model
