// SPDX-License-Identifier: Apache-2.0
// Running averages of the parameters, several decays in one pass over memory.
//
// Averages are F32 (F64 for F64 parameters). A swap exchanges bits where both have one type. Where the parameter is of 16
// bits it receives the rounded average, and the average stays as it is; the parameter's own bits wait in a copy, so swapping
// back is exact in all types.
// What is written to the parameters in between is therefore kept in the average or lost: do not train while swapped.
// On a GPU the work is put into the order of a stream, and the host waits only where memory is made or freed (the first
// update, and swaps of 16-bit parameters).
// Threads: one at a time.
// Tested by unit/optim/ema_test.cpp and gpu_host/ema_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.hpp"
#include "device/span_lists.hpp"
#include "model/model.hpp"
#include "model/replica_state.hpp"
#include "optim/optimizer_state.hpp"

namespace ddp::optim {

class Ema final : public model::ReplicaState {
 public:
  /// Throws INVALID_ARGUMENT in the name of ddp_ema_create.
  Ema(std::shared_ptr<model::Model> model, std::vector<double> decays);
  ~Ema() override;

  void update(void* stream = nullptr);
  void swap(int32_t which, void* stream = nullptr);

  [[nodiscard]] const std::vector<double>& decays() const noexcept { return decays_; }
  /// Averages by name "<decay>.<parameter>", allocated (zeroed) if they were not yet. Refused (INVALID_STATE) while swapped.
  [[nodiscard]] std::vector<model::StateTensor> state_tensors() override;
  /// updates: how many; before the first one the tensors are zero and mean nothing.
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override;
  void load_fields(const std::map<std::string, std::string>& fields) override;
  [[nodiscard]] const char* kind() const noexcept override { return "ema"; }

  void give_parameters_back() noexcept override;
  void begin_added(const std::vector<int32_t>& added, void* stream) override;
  [[nodiscard]] int64_t update_count() const noexcept { return updates_; }
  /// An average, named as in state_tensors, that a checkpoint did not have.
  void begin_at_parameter(const std::string& name);

  [[nodiscard]] model::Model& model() const noexcept { return *model_; }

 private:
  void refuse_capture(const char* function, void* stream) const;
  void list_averages();
  void start(void* stream);
  void follow(void* stream);
  void swap_in(int32_t which, void* stream);
  void swap_back(void* stream);
  void list_exchanged(int32_t which);

  std::shared_ptr<model::Model> model_;
  std::vector<double> decays_;
  OptimizerState averages_;            // one array for each decay
  device::SpanLists exchanged_;        // of a swap: parameters and averages of one type
  device::SpanLists spans_;            // of the call under way
  std::vector<device::Memory> saved_;  // while swapped: 16-bit parameters by index, others empty
  int32_t swapped_ = -1;               // which average the parameters hold
  int64_t updates_ = 0;
};

}  // namespace ddp::optim
