// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd.hpp"

#include "core/error.hpp"

namespace ddp::optim {

Sgd::Sgd(std::shared_ptr<model::Model> model, const ddp_sgd_options& options, const ddp_optimizer_options& shared)
    : Optimizer(std::move(model), ParamGroups(options.rate, options.weight_decay), shared, "sgd"),
      options_(options),
      buffers_(options.momentum != 0 ? 1 : 0) {
  buffers_.move_in_rule(shared.master_weights == 0);
}

void Sgd::update(const Block& block, const device::GradShape& shape) {
  const int32_t index = block.index;
  cpu::SgdStep step =
      sgd_step(options_, schedule().rate_of(index), schedule().weight_decay_of(index), schedule().steps_of(index));
  void* const buffer = step.mode == cpu::Momentum::kNone ? nullptr : buffers_.at(*block.parameter, index, 0, block.first);
  if (buffers_.is_moving()) {
    step.shape = cpu::GradShape{shape.scale, shape.limit};
    void* const old = buffers_.at(*block.parameter, index, 0, block.first, buffers_.side(index));
    return cpu::sgd_update(step, block.dtype, block.value, block.grad, cpu::Moved{old, buffer}, block.count);
  }
  updates_.add(device::of(block.parameter->value), block.dtype,
               device::Update{block.value, block.grad, {buffer, nullptr}, block.master, block.count, index}, rule_of(step),
               shape);
}

std::optional<ddp_gpu_rule_options> Sgd::gpu_rule() const noexcept {
  ddp_gpu_rule_options rule{};
  rule.nesterov = options_.nesterov;
  rule.momentum = options_.momentum;
  rule.dampening = options_.dampening;
  return rule;
}

std::vector<model::StateTensor> Sgd::state_tensors() { return named_tensors({"momentum_buffer"}); }

std::map<std::string, std::string> Sgd::state_fields() const {
  Fields fields = common_fields();
  fields["momentum"] = number_text(options_.momentum);
  fields["dampening"] = number_text(options_.dampening);
  fields["nesterov"] = std::to_string(options_.nesterov);
  return fields;
}

void Sgd::load_fields(const std::map<std::string, std::string>& fields) {
  Common common = read_common(fields);
  ddp_sgd_options options = options_;
  options.momentum = read_number(fields, "momentum");
  options.dampening = read_number(fields, "dampening");
  options.nesterov = read_flag(fields, "nesterov");
  check_sgd_options(options, "the checkpoint", DDP_ERROR_IO);
  if ((options.momentum != 0) != (options_.momentum != 0))
    throw make_error(
        DDP_ERROR_MISMATCH,
        "the checkpoint was saved with momentum %g, but the optimizer was created with %g; both or neither must be 0",
        options.momentum, options_.momentum);
  options_ = options;
  set_common(std::move(common));
}

}  // namespace ddp::optim
