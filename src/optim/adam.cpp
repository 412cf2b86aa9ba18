// SPDX-License-Identifier: Apache-2.0
#include "optim/adam.hpp"

namespace ddp::optim {

Adam::Adam(std::shared_ptr<model::Model> model, const ddp_adam_options& options, const ddp_optimizer_options& shared)
    : Optimizer(std::move(model), ParamGroups(options.rate, options.weight_decay), shared, "adam"),
      options_(options),
      moments_(2) {
  moments_.move_in_rule(shared.master_weights == 0);
}

void Adam::update(const Block& block, const device::GradShape& shape) {
  const int32_t index = block.index;
  cpu::AdamStep step =
      adam_step(options_, schedule().rate_of(index), schedule().weight_decay_of(index), schedule().steps_of(index));
  std::byte* const exp_avg = moments_.at(*block.parameter, index, 0, block.first);
  std::byte* const exp_avg_sq = moments_.at(*block.parameter, index, 1, block.first);
  if (moments_.is_moving()) {
    step.shape = cpu::GradShape{shape.scale, shape.limit};
    const auto moved = [&](size_t array, std::byte* to) {
      return cpu::Moved{moments_.at(*block.parameter, index, array, block.first, moments_.side(index)), to};
    };
    return cpu::adam_update(step, block.dtype, block.value, block.grad, moved(0, exp_avg), moved(1, exp_avg_sq),
                            block.count);
  }
  updates_.add(device::of(block.parameter->value), block.dtype,
               device::Update{block.value, block.grad, {exp_avg, exp_avg_sq}, block.master, block.count, index},
               rule_of(step), shape);
}

std::optional<ddp_gpu_rule_options> Adam::gpu_rule() const noexcept {
  ddp_gpu_rule_options rule{};
  rule.is_adam = 1;
  rule.decoupled = options_.decoupled;
  rule.beta1 = options_.beta1;
  rule.beta2 = options_.beta2;
  rule.epsilon = options_.epsilon;
  return rule;
}

std::vector<model::StateTensor> Adam::state_tensors() { return named_tensors({"exp_avg", "exp_avg_sq"}); }

std::map<std::string, std::string> Adam::state_fields() const {
  Fields fields = common_fields();
  fields["beta1"] = number_text(options_.beta1);
  fields["beta2"] = number_text(options_.beta2);
  fields["epsilon"] = number_text(options_.epsilon);
  fields["decoupled"] = std::to_string(options_.decoupled);
  return fields;
}

void Adam::load_fields(const std::map<std::string, std::string>& fields) {
  Common common = read_common(fields);
  ddp_adam_options options = options_;
  options.beta1 = read_number(fields, "beta1");
  options.beta2 = read_number(fields, "beta2");
  options.epsilon = read_number(fields, "epsilon");
  options.decoupled = read_flag(fields, "decoupled");
  check_adam_options(options, "the checkpoint", DDP_ERROR_IO);
  options_ = options;
  set_common(std::move(common));
}

}  // namespace ddp::optim
