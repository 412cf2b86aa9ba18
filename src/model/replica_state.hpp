// SPDX-License-Identifier: Apache-2.0
// State that belongs to a model's replicas besides the table: an optimizer's moments, averages. Equal on all ranks as
// parameters are, unless each rank holds another part. Tested by conformance/drift_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/owned_span.hpp"
#include "core/tensor.hpp"

namespace ddp::model {

/// One tensor of an optimizer's (or average's) state, by name: "w1.exp_avg". If the ranks hold parts of it, `parts` lists
/// them, by rank, in elements of the flat tensor, and at `tensor.data` this rank's parts are contiguous.
struct StateTensor {
  std::string name;
  Tensor tensor;
  std::vector<std::vector<OwnedSpan>> parts{};
};

class ReplicaState {
 public:
  virtual ~ReplicaState() = default;
  /// "sgd", "adam", "custom", "ema"
  [[nodiscard]] virtual const char* kind() const noexcept = 0;
  /// The state tensors, allocated (zeroed) if they were not yet. Names are "<parameter>.<field>", fields as in PyTorch
  /// (exp_avg, exp_avg_sq, momentum_buffer).
  [[nodiscard]] virtual std::vector<StateTensor> state_tensors() = 0;
  /// Numbers and texts that belong to the state: rate, options, step counts per parameter. All must come back by
  /// load_fields.
  [[nodiscard]] virtual std::map<std::string, std::string> state_fields() const = 0;
  /// Throws MISMATCH or IO without any effect when a field is missing or cannot be understood.
  virtual void load_fields(const std::map<std::string, std::string>& fields) = 0;
  /// Values of these parameters (by index) were loaded without their part of this state. No work may be pending on a GPU.
  virtual void follow_loaded_values(const std::vector<bool>&) {}
  /// Of an optimizer: the fields of another one of the model, of which it takes what all optimizers have alike.
  virtual void share(const std::map<std::string, std::string>&) {}
  /// Steps that have made it what it is: the state of a rank that has made more is ahead.
  [[nodiscard]] virtual int64_t steps() const { return 0; }
  /// Of an optimizer: the steps that it has made; else -1.
  [[nodiscard]] virtual int64_t optimizer_steps() const { return -1; }
  /// Has the last pass ended well, with gradients that this state has not taken?
  [[nodiscard]] virtual bool awaits_step() const noexcept { return false; }
  /// Has it taken the gradients of the last pass?
  [[nodiscard]] virtual bool took_step() const noexcept { return false; }
  /// The ranks of the group have changed, so this rank's part of a sharded state belongs to no rank: drop it.
  virtual void lose_parts() noexcept {}
  /// Is a part that is dropped made again as it was, because no step has changed it?
  [[nodiscard]] virtual bool is_initial() const { return false; }
  /// The model is building again: what depends on its buckets is released, and the parts of a sharded state, which were
  /// set aside.
  virtual void reopen() {}
  /// The model is committed again, with these parameters in addition (by index), whose values all ranks have.
  virtual void begin_added(const std::vector<int32_t>&, void*) {}
  /// Put back what it has put in the place of the parameters: a recovery begins.
  virtual void give_parameters_back() noexcept {}
  /// Does every rank hold all of the state?
  [[nodiscard]] virtual bool is_replicated() const noexcept { return true; }
};

}  // namespace ddp::model
