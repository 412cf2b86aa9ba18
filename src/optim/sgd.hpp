// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum, dampening, weight decay and Nesterov's look-ahead, as torch.optim.SGD defines
// them: the buffer of a parameter's first step is its gradient, undampened. Without momentum no memory is kept.
// Tested by unit/optim/optimizer_test.cpp.
#pragma once

#include "optim/optimizer.hpp"
#include "optim/rules.hpp"

namespace ddp::optim {

class Sgd final : public Optimizer {
 public:
  /// Options must have been checked.
  Sgd(std::shared_ptr<model::Model> model, const ddp_sgd_options& options, const ddp_optimizer_options& shared);

  [[nodiscard]] const char* kind() const noexcept override { return "sgd"; }
  [[nodiscard]] std::vector<model::StateTensor> state_tensors() override;
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override;
  /// A checkpoint with momentum does not fit an optimizer without, or the other way round.
  void load_fields(const std::map<std::string, std::string>& fields) override;

 protected:
  [[nodiscard]] OptimizerState* store() noexcept override { return &buffers_; }
  [[nodiscard]] device::Updates& updates() noexcept override { return updates_; }
  [[nodiscard]] std::optional<ddp_gpu_rule_options> gpu_rule() const noexcept override;
  void update(const Block& block, const device::GradShape& shape) override;

 private:
  ddp_sgd_options options_;  // its rate and weight decay are those of the start; the schedule holds the present ones
  OptimizerState buffers_;
  device::RuleUpdates<device::SgdRule> updates_;
};

}  // namespace ddp::optim
