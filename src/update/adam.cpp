#include "update/adam.hpp"

namespace ddp {

Adam::Adam(std::shared_ptr<Model> model, const ddp_adam_options& options)
    : ScheduledOptimizer(std::move(model), Schedule(options.rate, options.weight_decay)), options_(options), moments_(2) {}

void Adam::prepare() { moments_.allocate(model().table()); }

void Adam::update(int32_t index, const Parameter& parameter) {
  const AdamStep step = adam_step(options_, schedule().rate_of(index), schedule().weight_decay_of(index), schedule().steps_of(index));
  adam_update(step, parameter.value.dtype, parameter.value.data, parameter.grad.data, moments_.data(index, 0),
              moments_.data(index, 1), parameter.value.count);
}

std::vector<StateTensor> Adam::state_tensors() {
  prepare();
  return named_tensors(model().table(), moments_, {"exp_avg", "exp_avg_sq"});
}

std::map<std::string, std::string> Adam::state_fields() const {
  Fields fields = schedule().fields(model().table());
  fields["beta1"] = number_text(options_.beta1);
  fields["beta2"] = number_text(options_.beta2);
  fields["epsilon"] = number_text(options_.epsilon);
  fields["decoupled"] = std::to_string(options_.decoupled);
  return fields;
}

void Adam::load_fields(const std::map<std::string, std::string>& fields) {
  Schedule loaded = Schedule::from_fields(fields, model().table());
  ddp_adam_options options = options_;
  options.beta1 = read_number(fields, "beta1");
  options.beta2 = read_number(fields, "beta2");
  options.epsilon = read_number(fields, "epsilon");
  options.decoupled = read_flag(fields, "decoupled");
  check_adam_options(options, "the checkpoint", DDP_ERROR_IO);
  options_ = options;
  set_schedule(std::move(loaded));
}

}  // namespace ddp
