// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba: "Adam: a method for stochastic optimization", 2015) and AdamW (Loshchilov and Hutter: "Decoupled
// weight decay regularization", 2019), as torch.optim.Adam and AdamW define them. The bias correction follows each
// parameter's own step count.
// Tested by unit/optim/optimizer_test.cpp.
#pragma once

#include "optim/optimizer.hpp"
#include "optim/rules.hpp"

namespace ddp::optim {

class Adam final : public Optimizer {
 public:
  /// Options must have been checked.
  Adam(std::shared_ptr<model::Model> model, const ddp_adam_options& options, const ddp_optimizer_options& shared);

  [[nodiscard]] const char* kind() const noexcept override { return "adam"; }
  [[nodiscard]] std::vector<model::StateTensor> state_tensors() override;
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override;
  void load_fields(const std::map<std::string, std::string>& fields) override;

 protected:
  [[nodiscard]] OptimizerState* store() noexcept override { return &moments_; }
  [[nodiscard]] device::Updates& updates() noexcept override { return updates_; }
  [[nodiscard]] std::optional<ddp_gpu_rule_options> gpu_rule() const noexcept override;
  void update(const Block& block, const device::GradShape& shape) override;

 private:
  ddp_adam_options options_;  // its rate and weight decay are those of the start; the schedule holds the present ones
  OptimizerState moments_;    // exp_avg, exp_avg_sq
  device::RuleUpdates<device::AdamRule> updates_;
};

}  // namespace ddp::optim
