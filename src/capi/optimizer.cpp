// ddp/optimizer.h.
#include "ddp/optimizer.h"

#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "update/adam.hpp"
#include "update/custom.hpp"
#include "update/sgd.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

ddp_sgd_options default_sgd() {
  ddp_sgd_options options{};
  options.rate = 0.01;
  return options;
}

ddp_adam_options default_adam() {
  ddp_adam_options options{};
  options.rate = 0.001;
  options.beta1 = 0.9;
  options.beta2 = 0.999;
  options.epsilon = 1e-8;
  options.weight_decay = 0.01;
  options.decoupled = 1;
  return options;
}

/// Lets go of the user data of a custom optimizer that was not made.
struct Release {
  ddp_release_fn fn;
  void* user_data;
  ~Release() {
    if (fn != nullptr) fn(user_data);
  }
};

}  // namespace

ddp_status ddp_sgd_options_init(ddp_sgd_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, default_sgd(), "ddp_sgd_options_init"); });
}

ddp_status ddp_adam_options_init(ddp_adam_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, default_adam(), "ddp_adam_options_init"); });
}

ddp_status ddp_optimizer_create_sgd(ddp_model* model, const ddp_sgd_options* options, ddp_optimizer** out_optimizer) {
  return guarded([&] {
    const auto object = model_of(model, "ddp_optimizer_create_sgd");
    require(out_optimizer, "ddp_optimizer_create_sgd", "out_optimizer");
    const ddp_sgd_options read = read_options(options, default_sgd(), "ddp_optimizer_create_sgd");
    *out_optimizer = OptimizerTable::instance().add(std::make_shared<Sgd>(object, read));
  });
}

ddp_status ddp_optimizer_create_adam(ddp_model* model, const ddp_adam_options* options, ddp_optimizer** out_optimizer) {
  return guarded([&] {
    const auto object = model_of(model, "ddp_optimizer_create_adam");
    require(out_optimizer, "ddp_optimizer_create_adam", "out_optimizer");
    const ddp_adam_options read = read_options(options, default_adam(), "ddp_optimizer_create_adam");
    *out_optimizer = OptimizerTable::instance().add(std::make_shared<Adam>(object, read));
  });
}

ddp_status ddp_optimizer_create_custom(ddp_model* model, ddp_update_fn fn, void* user_data, ddp_release_fn release,
                                       ddp_optimizer** out_optimizer) {
  return guarded([&] {
    Release unless_made{release, user_data};
    const auto object = model_of(model, "ddp_optimizer_create_custom");
    require(out_optimizer, "ddp_optimizer_create_custom", "out_optimizer");
    if (fn == nullptr) throw Error(DDP_ERROR_INVALID_ARGUMENT, "ddp_optimizer_create_custom: fn is NULL");
    auto optimizer = std::make_shared<Custom>(object, fn, user_data, release);
    unless_made.fn = nullptr;  // the optimizer lets go from here on
    *out_optimizer = OptimizerTable::instance().add(std::move(optimizer));
  });
}

void ddp_optimizer_destroy(ddp_optimizer* optimizer) {
  (void)guarded([&] { (void)OptimizerTable::instance().remove(optimizer); });
}

ddp_status ddp_optimizer_set_rate(ddp_optimizer* optimizer, double rate) {
  return guarded([&] { optimizer_of(optimizer, "ddp_optimizer_set_rate")->set_rate(rate); });
}

ddp_status ddp_optimizer_get_rate(const ddp_optimizer* optimizer, double* out_rate) {
  return guarded([&] {
    const auto object = optimizer_of(optimizer, "ddp_optimizer_get_rate");
    require(out_rate, "ddp_optimizer_get_rate", "out_rate");
    *out_rate = object->rate();
  });
}

ddp_status ddp_optimizer_get_step_count(const ddp_optimizer* optimizer, int64_t* out_count) {
  return guarded([&] {
    const auto object = optimizer_of(optimizer, "ddp_optimizer_get_step_count");
    require(out_count, "ddp_optimizer_get_step_count", "out_count");
    *out_count = object->step_count();
  });
}

ddp_status ddp_optimizer_set_group(ddp_optimizer* optimizer, int32_t index, double weight_decay, double rate_scale) {
  return guarded([&] {
    const auto object = optimizer_of(optimizer, "ddp_optimizer_set_group");
    check_index(object->model(), index, "ddp_optimizer_set_group");
    object->set_group(index, weight_decay, rate_scale);
  });
}

ddp_status ddp_optimizer_step(ddp_optimizer* optimizer, void*) {
  return guarded([&] { optimizer_of(optimizer, "ddp_optimizer_step")->step(); });
}
