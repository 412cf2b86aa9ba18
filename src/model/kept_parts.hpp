// SPDX-License-Identifier: Apache-2.0
// What is kept of a state that the ranks hold in parts (ReplicaState::kept_parts), so that it outlives ranks that die.
// After a recovery, in this order: tell(); agree(), before anything else of the state changes; then, when the model has its
// passes again, deal().
// Tested by capi/kept_copy_test.cpp.
#pragma once

#include <string>
#include <vector>

namespace ddp::model {

class KeptParts {
 public:
  virtual ~KeptParts() = default;
  /// The group has broken: a step that was under way is taken back on this rank.
  virtual void leave() noexcept = 0;
  /// What this rank can give.
  [[nodiscard]] virtual std::string tell() const = 0;
  /// All ranks choose the same step to continue from, based on the data that all have exchanged, and this rank returns to
  /// it.
  virtual void agree(const std::vector<std::string>& told) = 0;
  /// Are all parts of a step left, for all ranks? Since the last agree().
  [[nodiscard]] virtual bool is_whole() const noexcept = 0;
  /// Sends parameters and state of that step to all ranks, in the parts that the ranks have now. Collective.
  virtual void deal() = 0;
  /// All ranks have the parts of the division that holds: from now on they outlive the ranks. Collective.
  virtual void meet() = 0;
  /// A load begins to change parameters or state: kept copies are invalid until it has ended.
  virtual void begin_load() noexcept = 0;
  /// It has ended on all ranks. Collective once they have met.
  virtual void end_load() = 0;
};

}  // namespace ddp::model
