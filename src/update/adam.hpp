// Adam (Kingma and Ba: "Adam: a method for stochastic optimization", 2015) and AdamW (Loshchilov and Hutter: "Decoupled weight decay
// regularization", 2019), as torch.optim.Adam and AdamW define them. The bias correction follows each parameter's own step count.
// Tested by unit/update/optimizer_test.cpp.
#pragma once

#include "update/scheduled.hpp"
#include "update/rules.hpp"

namespace ddp {

class Adam final : public ScheduledOptimizer {
 public:
  /// Options must have been checked.
  Adam(std::shared_ptr<Model> model, const ddp_adam_options& options, const ddp_optimizer_options& shared);

  [[nodiscard]] const char* kind() const noexcept override { return "adam"; }
  [[nodiscard]] std::vector<StateTensor> state_tensors() override;
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override;
  void load_fields(const std::map<std::string, std::string>& fields) override;

 protected:
  [[nodiscard]] Store* store() noexcept override { return &moments_; }
  [[nodiscard]] GpuUpdates* gpu_updates() noexcept override { return &noted_; }
  void update(const Block& block, const GradShape& shape) override;

 private:
  ddp_adam_options options_;  // its rate and weight decay are those of the start; the schedule holds the present ones
  Store moments_;             // exp_avg, exp_avg_sq
  RuleUpdates<ddp_gpu_adam_rule> noted_;
};

}  // namespace ddp
