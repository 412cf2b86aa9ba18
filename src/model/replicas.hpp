// SPDX-License-Identifier: Apache-2.0
// The replicas of a model, one on each rank, which are to hold the same bits: whether they do (drift.hpp), and one rank's
// state for all ranks when they do not (replicate.hpp). Threads: as Model, except keep_equal(). Tested by
// conformance/drift_test.cpp, conformance/load_test.cpp, gpu_host/sync_test.cpp and process/recovery_equal_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "ddp/model.h"
#include "device/memory.hpp"
#include "model/awaited_state.hpp"
#include "model/drift.hpp"
#include "model/reopened.hpp"
#include "model/replica_source.hpp"
#include "model/replica_state.hpp"

namespace ddp::model {

class Model;

class Replicas {
 public:
  explicit Replicas(Model& model) noexcept : model_(model) {}

  /// State that is to stay as equal as the parameters (an optimizer's); the same ones in the same order on all ranks. On a
  /// rank that has joined others it continues from theirs: throws MISMATCH if it is another one. Any thread.
  void keep_equal(std::weak_ptr<ReplicaState> state);
  [[nodiscard]] std::vector<std::shared_ptr<ReplicaState>> kept_equal();

  /// Throws MISMATCH if parameters or buffers differ. Collective.
  void check(void* stream = nullptr);
  /// A pass that reduced has ended: the check of the parameters, if the options ask for it now. What differs is repaired, or
  /// throws MISMATCH. Collective then.
  void check_after_pass(void* stream);
  /// Of this rank's parameters. Local.
  [[nodiscard]] uint64_t hash() const;
  /// What the checks after passes have come to.
  void fill(ddp_model_stats& stats) const noexcept;

  /// This rank loaded data that others may not have; commit sends rank 0's to all ranks.
  void set_loaded() noexcept { has_loaded_ = true; }
  /// The ranks have met: sends the values of one of them to all, and the kept states, if any rank has loaded or a recovery
  /// needs it (replica_source.hpp). Returns that rank, -1 if all had the same. Collective. After a recovery the ranks
  /// compare their data; if it still differs, the values count as torn, and take_difference() describes the difference.
  int32_t make_equal(void* stream);
  /// Have the parameters yet to take a step from the last gradients?
  [[nodiscard]] bool await_step() noexcept;
  /// Has an optimizer taken a step from them?
  [[nodiscard]] bool took_step() noexcept;
  /// MISMATCH, once, the same on all ranks.
  [[nodiscard]] std::optional<Error> take_difference() noexcept { return std::exchange(difference_, std::nullopt); }
  /// The group has broken: note how far this rank has come.
  void leave() noexcept;
  /// Equal on all ranks that have the same. After leave(), in host memory.
  [[nodiscard]] std::string version();
  /// Memory for buffers while others are received, by buffer.
  [[nodiscard]] std::vector<device::Memory>& buffers_before() noexcept { return buffers_before_; }
  /// Of all ranks, the most when they met.
  [[nodiscard]] int64_t final_passes() const noexcept { return final_passes_; }
  /// The model is building again, with what is set aside there; NULL: it is not. In this group, or in the one before.
  [[nodiscard]] Reopened* reopened() noexcept { return reopened_.get(); }
  void set_reopened(std::unique_ptr<Reopened> reopened) noexcept { reopened_ = std::move(reopened); }
  /// Has a rank of those that have met reopened the model?
  [[nodiscard]] bool some_reopened() const noexcept { return met_.some_reopened; }
  /// Has this rank joined, and still to make objects that the others have?
  [[nodiscard]] bool awaits_objects() noexcept;
  /// What was loaded before the first commit is the same on all ranks now.
  void forget_load() noexcept { has_loaded_ = false; }
  /// Sends parameters, buffers and kept states of `source` to all ranks. `function` names the caller in errors. Collective.
  void replicate_from(int32_t source, const char* function, void* stream);

 private:
  [[nodiscard]] bool take_awaited(const std::shared_ptr<ReplicaState>& object);
  void lose_parts();
  [[nodiscard]] NamedTensors beside_values();
  [[nodiscard]] std::vector<Tensor> values_and_buffers() const;
  [[nodiscard]] uint64_t hash_rest(void* stream);
  [[nodiscard]] ReplicaVersion present(void* stream);
  void await_states(int32_t source, const std::vector<ReplicaVersion>& all);
  void send(const ReplicaSource& found, bool spoils, void* stream);
  void settle(const ReplicaSource& found);

  Model& model_;
  std::mutex keeping_;  // guards kept_equal_ and awaited_: their owners are destroyed on any thread
  std::vector<std::weak_ptr<ReplicaState>> kept_equal_;
  std::vector<std::shared_ptr<AwaitedState>> awaited_;  // of these, in the same order: what has no object here yet
  bool has_loaded_ = false;
  bool is_new_ = true;  // has made no passes in an earlier group
  bool is_whole_ = true;
  bool is_between_ = false;  // when the group broke
  std::optional<Error> difference_;
  int64_t final_passes_ = 0;
  struct {
    int32_t rank_before = -1;
    int32_t size_before = 0;
    bool some_reopened = false;
  } met_;
  std::unique_ptr<Reopened> reopened_;
  std::vector<device::Memory> buffers_before_;
  int64_t checks_ = 0;
  int64_t repairs_ = 0;
};

}  // namespace ddp::model
