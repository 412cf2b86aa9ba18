#include "update/sgd.hpp"

#include "base/error.hpp"

namespace ddp {

Sgd::Sgd(std::shared_ptr<Model> model, const ddp_sgd_options& options)
    : ScheduledOptimizer(std::move(model), Schedule(options.rate, options.weight_decay)),
      options_(options),
      buffers_(options.momentum != 0 ? 1 : 0) {}

void Sgd::prepare() { buffers_.allocate(model().table()); }

void Sgd::update(int32_t index, const Parameter& parameter) {
  const SgdStep step = sgd_step(options_, schedule().rate_of(index), schedule().weight_decay_of(index), schedule().steps_of(index));
  void* const buffer = step.mode == Momentum::kNone ? nullptr : buffers_.data(index, 0);
  sgd_update(step, parameter.value.dtype, parameter.value.data, parameter.grad.data, buffer, parameter.value.count);
}

std::vector<StateTensor> Sgd::state_tensors() {
  prepare();
  if (buffers_.arrays() == 0) return {};
  return named_tensors(model().table(), buffers_, {"momentum_buffer"});
}

std::map<std::string, std::string> Sgd::state_fields() const {
  Fields fields = schedule().fields(model().table());
  fields["momentum"] = number_text(options_.momentum);
  fields["dampening"] = number_text(options_.dampening);
  fields["nesterov"] = std::to_string(options_.nesterov);
  return fields;
}

void Sgd::load_fields(const std::map<std::string, std::string>& fields) {
  Schedule loaded = Schedule::from_fields(fields, model().table());
  ddp_sgd_options options = options_;
  options.momentum = read_number(fields, "momentum");
  options.dampening = read_number(fields, "dampening");
  options.nesterov = read_flag(fields, "nesterov");
  check_sgd_options(options, "the checkpoint", DDP_ERROR_IO);
  if ((options.momentum != 0) != (options_.momentum != 0))
    throw make_error(DDP_ERROR_MISMATCH,
                     "the checkpoint was saved with momentum %g, but the optimizer was created with %g; both or neither must be 0",
                     options.momentum, options_.momentum);
  options_ = options;
  set_schedule(std::move(loaded));
}

}  // namespace ddp
