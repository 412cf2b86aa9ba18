// SPDX-License-Identifier: Apache-2.0
// The state of an optimizer (or of averages) that the other ranks have, on a new rank that has not made the object yet: it
// takes the object's place among the replica's states, until the object is made and takes it. Tested by
// capi/recovery_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/parameters.hpp"
#include "device/memory.hpp"
#include "model/replica_state.hpp"

namespace ddp::model {

class AwaitedState final : public ReplicaState {
 public:
  /// The text of describe() on another rank; memory is made on the device of the parameters. Throws OUT_OF_MEMORY.
  AwaitedState(std::string_view description, const Parameters& table);

  [[nodiscard]] const char* kind() const noexcept override { return kind_.c_str(); }
  [[nodiscard]] std::vector<StateTensor> state_tensors() override { return tensors_; }
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override { return fields_; }
  void load_fields(const std::map<std::string, std::string>& fields) override { fields_ = fields; }
  [[nodiscard]] int64_t steps() const override { return steps_; }
  [[nodiscard]] int64_t optimizer_steps() const override { return optimizer_steps_; }

  /// The object was made, and continues from this state. Throws MISMATCH, without any effect, if it is another one.
  void give(ReplicaState& to) const;

  /// Of a state that all ranks hold whole.
  [[nodiscard]] static std::string describe(ReplicaState& state);

 private:
  std::string kind_;
  int64_t steps_ = 0;
  int64_t optimizer_steps_ = -1;
  std::vector<StateTensor> tensors_;
  std::vector<device::Memory> memory_;
  std::map<std::string, std::string> fields_;
};

}  // namespace ddp::model
