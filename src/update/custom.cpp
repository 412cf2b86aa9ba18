#include "update/custom.hpp"

namespace ddp {

void Custom::step() {
  model().require_ready("ddp_optimizer_step");
  model().group().check_usable();
  schedule_.count_call();
  for (int32_t index = 0; index < model().table().parameter_count(); ++index) {
    const double scale = schedule_.group(index, 0).rate_scale;
    if (!model().was_used(index) || scale == 0) continue;
    schedule_.count_step(index);
    const Parameter& parameter = model().table().parameter(index);
    const ddp_tensor value = to_c(parameter.value);
    const ddp_tensor grad = to_c(parameter.grad);
    const int32_t result = fn_(user_data_, index, &value, &grad, schedule_.rate() * scale, nullptr);
    if (result != 0)
      throw make_error(DDP_ERROR_CALLBACK, "ddp_optimizer_step: the update callback returned %d for parameter %d (\"%s\")", result, index,
                       parameter.name.c_str());
  }
}

Fields Custom::state_fields() const {
  Fields fields;
  schedule_.write(fields, model().table());
  return fields;
}

void Custom::load_fields(const Fields& fields) { schedule_ = Schedule::read(fields, model().table()); }

void Custom::set_group(int32_t index, double weight_decay, double rate_scale) {
  if (weight_decay != 0)
    throw Error(DDP_ERROR_INVALID_ARGUMENT, "a custom optimizer applies its weight decay itself; pass 0 here");
  schedule_.set_group(index, weight_decay, rate_scale);
}

}  // namespace ddp
