// Stochastic gradient descent with momentum, dampening, weight decay and Nesterov's look-ahead, as torch.optim.SGD defines them: the
// buffer of a parameter's first step is its gradient, undampened. Without momentum no memory is kept.
// Tested by unit/update/optimizer_test.cpp.
#pragma once

#include "update/scheduled.hpp"
#include "update/rules.hpp"

namespace ddp {

class Sgd final : public ScheduledOptimizer {
 public:
  /// Options must have been checked.
  Sgd(std::shared_ptr<Model> model, const ddp_sgd_options& options, const ddp_optimizer_options& shared);

  [[nodiscard]] const char* kind() const noexcept override { return "sgd"; }
  [[nodiscard]] std::vector<StateTensor> state_tensors() override;
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override;
  /// A checkpoint with momentum does not fit an optimizer without, or the other way round.
  void load_fields(const std::map<std::string, std::string>& fields) override;

 protected:
  [[nodiscard]] Store* store() noexcept override { return &buffers_; }
  [[nodiscard]] GpuUpdates* gpu_updates() noexcept override { return &noted_; }
  void update(const Block& block, const GradShape& shape) override;

 private:
  ddp_sgd_options options_;  // its rate and weight decay are those of the start; the schedule holds the present ones
  Store buffers_;
  RuleUpdates<ddp_gpu_sgd_rule> noted_;
};

}  // namespace ddp
