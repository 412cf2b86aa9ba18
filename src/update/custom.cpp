#include "update/custom.hpp"

#include "base/callback.hpp"
#include "base/log.hpp"

namespace ddp {

UserData::~UserData() {
  if (release_ == nullptr) return;
  const NoCancellation whole;
  try {
    call_program("the function that releases user_data", [this] { release_(data_); });
  } catch (const std::exception& error) {
    log(DDP_LOG_WARNING, "%s", error.what());
  }
}

Custom::Custom(std::shared_ptr<Model> model, ddp_update_fn fn, UserData user_data)
    : ScheduledOptimizer(std::move(model), Schedule(0, 0)), fn_(fn), user_data_(std::move(user_data)) {}

void Custom::update(const Block& block, const GradShape&) {
  const int32_t index = block.index;
  const Parameter& parameter = block.parameter;
  const ddp_tensor value = to_c(declared_view(parameter.value, parameter.declared));
  const ddp_tensor grad = to_c(declared_view(parameter.grad, parameter.declared));
  const int32_t status = call_program([&] { return "ddp_optimizer_step: the update of parameter \"" + parameter.name + "\""; }, [&] {
    return fn_(user_data_.get(), index, &value, &grad, schedule().rate_of(index), block.stream);
  });
  if (status != 0)
    throw make_error(DDP_ERROR_CALLBACK, "ddp_optimizer_step: the update of parameter \"%s\" (index %d) returned %d",
                     parameter.name.c_str(), index, status);
}

void Custom::set_group(int32_t index, double weight_decay, double rate_scale) {
  if (weight_decay > 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_optimizer_set_group: weight_decay is %g, but a custom optimizer applies its decay itself; pass 0", weight_decay);
  ScheduledOptimizer::set_group(index, weight_decay, rate_scale);
}

void Custom::set_loss_scale(const ddp_loss_scale_options& options) { Optimizer::set_loss_scale(options); }

std::map<std::string, std::string> Custom::state_fields() const { return schedule().fields(model().table()); }

void Custom::load_fields(const std::map<std::string, std::string>& fields) {
  set_schedule(Schedule::from_fields(fields, model().table()));
}

}  // namespace ddp
