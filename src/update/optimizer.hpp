// Seam 4: how parameters change. Built-in rules (sgd, adam) and the caller's own (custom) behind one interface of few functions.
// Threads: one at a time.
// Tested by unit/update/optimizer_test.cpp against a float64 oracle.
#pragma once

#include <cstdint>
#include <memory>

#include "reduce/replica_state.hpp"
#include "reduce/model.hpp"

namespace ddp {

class Optimizer : public ReplicaState {
 public:
  explicit Optimizer(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  /// One update of every used parameter.
  virtual void step() = 0;
  virtual void set_rate(double rate) = 0;
  [[nodiscard]] virtual double rate() const noexcept = 0;
  [[nodiscard]] virtual int64_t step_count() const noexcept = 0;
  virtual void set_group(int32_t index, double weight_decay, double rate_scale) = 0;

  [[nodiscard]] Model& model() const noexcept { return *model_; }

 private:
  std::shared_ptr<Model> model_;
};

}  // namespace ddp
