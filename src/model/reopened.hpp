// SPDX-License-Identifier: Apache-2.0
// A committed model that is building again (ddp_model_reopen): what its passes have left, and this rank's parts of sharded
// state, which get a new division with the next commit. State that every rank holds whole stays where it is, by the numbers
// of parameters, which do not change.
//
// The parts are set aside in host memory before the ranks agree, so a lack of memory changes nothing. They move as those of
// peer checkpoints do (group/relayout.hpp), by the name of the tensor, whatever ranks there are by then; if ranks have died
// with parts, a checkpoint is needed. Until the commit no recovery builds the model.
// Threads: as Model. Tested by capi/reopen_test.c, capi/reopen_recovery_test.cpp and conformance/reopen_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "group/generation.hpp"
#include "model/replica_state.hpp"
#include "pass/pass.hpp"

namespace ddp::model {

class Model;

class Reopened {
 public:
  /// ddp_model_reopen. Collective.
  static void begin(Model& model, void* stream);
  /// Throws INVALID_STATE unless the model is building, INVALID_ARGUMENT if there is no such parameter.
  static void remove_parameter(Model& model, int32_t index);
  static void remove_buffer(Model& model, int32_t index);
  /// The passes of a model stand again: parts go to their owners. Collective if a rank has reopened the model, also on ranks
  /// that have joined since; else nothing.
  static void finish(Model& model);

  /// What the present passes leave. Throws OUT_OF_MEMORY, and INVALID_STATE if this rank has joined and lacks objects.
  explicit Reopened(Model& model);
  /// False: the ranks have yet to agree.
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }
  /// Values of added parameters, from a rank to all; then state that every rank has begins at them. Collective.
  void send_added(Model& model, int32_t source, void* stream) const;
  /// The same with this rank's values. A failure breaks the group.
  void begin_added(Model& model, void* stream) const;

 private:
  /// A tensor that was set aside, and whose state it is part of.
  struct Owner {
    std::weak_ptr<ReplicaState> state;
    std::string name;
  };
  void open(Model& model);
  /// As all ranks know it now; a tensor that is not wanted any more has no name.
  [[nodiscard]] std::string describe(Model& model) const;
  [[nodiscard]] group::Holdings holdings() const;
  static void move_parts(Model& model);
  void go_on(Model& model) const;

  bool is_open_ = false;
  int32_t parameters_;  // that were added before
  size_t buffers_;
  group::KeptTable table_;
  std::vector<Owner> owners_;  // of its items
  group::HeldPart part_;
  std::vector<std::byte> bytes_;
  // Of the passes before.
  pass::Results::Gradients gradients_;
  bool went_alone_;
  double weight_;
  std::vector<int32_t> accumulated_;  // parameters
};

}  // namespace ddp::model
