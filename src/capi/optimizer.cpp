// SPDX-License-Identifier: Apache-2.0
// ddp/optimizer.h.
#include "capi/guard.hpp"
#include "capi/options.hpp"
#include "capi/state_tables.hpp"
#include "capi/tensors.hpp"
#include "ddp/custom.h"
#include "ddp/graph.h"
#include "model/optimizer_slot.hpp"
#include "model/replicas.hpp"
#include "optim/adam.hpp"
#include "optim/custom.hpp"
#include "optim/sgd.hpp"
#include "os/log.hpp"

using namespace ddp::capi;

namespace {

/// Give the optimizer its handle, its parameters, and its part in the model's passes if it asked for one.
ddp_optimizer* add(const std::shared_ptr<ddp::optim::Optimizer>& optimizer) {
  ddp::model::Model& model = optimizer->model();
  or_first_cause(model.group(), [&] { model.optimizer_slot().add(optimizer); });
  optimizer->join_others();
  model.replicas().keep_equal(optimizer);
  return OptimizerTable::instance().add(optimizer);  // last: without a handle the program could not destroy it
}

ddp_optimizer_options read_shared(ddp::model::Model& model, const ddp_optimizer_options* options, const char* function) {
  const ddp_optimizer_options read = read_options(options, ddp::optim::default_optimizer_options(), function);
  ddp::optim::check_optimizer_options(read, function);
  const bool recovers = model.group().options().recoverable != 0;
  if (recovers && (read.shard != 0 || (read.in_backward != 0 && read.undo == 0)))
    ddp::os::log(DDP_LOG_INFO,
                 "%s: with %s, a rank that dies takes state with it: keep it with ddp_state_keep, or load a checkpoint then",
                 function, read.shard != 0 ? "shard = 1" : "in_backward = 1 and undo = 0");
  return read;
}

/// A rule of the program, for an optimizer whose model has this group.
struct ProgramRule {
  const ddp::group::Group& group;
  ddp_update_fn fn;
  ddp::optim::UserData user_data;

  static int32_t update(void* rule, const ddp_update_slice* slice) {
    const ProgramRule& self = *static_cast<const ProgramRule*>(rule);
    const InProgram inside(self.group);
    return self.fn(self.user_data.get(), slice);
  }
  static void release(void* rule) { delete static_cast<ProgramRule*>(rule); }
};

}  // namespace

ddp_status ddp_optimizer_options_init(ddp_optimizer_options* options, int64_t struct_size) {
  return guarded(
      [&] { init_options(options, struct_size, ddp::optim::default_optimizer_options(), "ddp_optimizer_options_init"); });
}

ddp_status ddp_sgd_options_init(ddp_sgd_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, ddp::optim::default_sgd_options(), "ddp_sgd_options_init"); });
}

ddp_status ddp_adam_options_init(ddp_adam_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, ddp::optim::default_adam_options(), "ddp_adam_options_init"); });
}

ddp_status ddp_custom_options_init(ddp_custom_options* options, int64_t struct_size) {
  return guarded(
      [&] { init_options(options, struct_size, ddp::optim::default_custom_options(), "ddp_custom_options_init"); });
}

ddp_status ddp_optimizer_create_sgd(ddp_model* model, const ddp_sgd_options* rule, const ddp_optimizer_options* options,
                                    ddp_optimizer** out_optimizer) {
  return guarded([&] {
    constexpr const char* kFunction = "ddp_optimizer_create_sgd";
    auto of = model_of(model, kFunction);
    require(out_optimizer, kFunction, "out_optimizer");
    const ddp_sgd_options read = read_options(rule, ddp::optim::default_sgd_options(), kFunction);
    ddp::optim::check_sgd_options(read, kFunction);
    *out_optimizer = add(std::make_shared<ddp::optim::Sgd>(std::move(of), read, read_shared(*of, options, kFunction)));
  });
}

ddp_status ddp_optimizer_create_adam(ddp_model* model, const ddp_adam_options* rule, const ddp_optimizer_options* options,
                                     ddp_optimizer** out_optimizer) {
  return guarded([&] {
    constexpr const char* kFunction = "ddp_optimizer_create_adam";
    auto of = model_of(model, kFunction);
    require(out_optimizer, kFunction, "out_optimizer");
    const ddp_adam_options read = read_options(rule, ddp::optim::default_adam_options(), kFunction);
    ddp::optim::check_adam_options(read, kFunction);
    *out_optimizer = add(std::make_shared<ddp::optim::Adam>(std::move(of), read, read_shared(*of, options, kFunction)));
  });
}

ddp_status ddp_optimizer_create_custom(ddp_model* model, const ddp_custom_options* rule,
                                       const ddp_optimizer_options* options, const char* state_names, ddp_update_fn fn,
                                       void* user_data, ddp_release_fn release, ddp_optimizer** out_optimizer) {
  return guarded([&] {
    constexpr const char* kFunction = "ddp_optimizer_create_custom";
    ddp::optim::UserData owned(user_data, release);  // first, so that it is released whatever fails
    auto of = model_of(model, kFunction);
    if (fn == nullptr) throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: fn is NULL", kFunction);
    require(out_optimizer, kFunction, "out_optimizer");
    const ddp_optimizer_options shared = read_shared(*of, options, kFunction);
    const ddp::optim::CustomRule read(read_options(rule, ddp::optim::default_custom_options(), kFunction), state_names,
                                      kFunction);
    ddp::optim::UserData program_rule(new ProgramRule{of->group(), fn, std::move(owned)}, ProgramRule::release);
    *out_optimizer =
        add(std::make_shared<ddp::optim::Custom>(std::move(of), ProgramRule::update, read, shared, std::move(program_rule)));
  });
}

void ddp_optimizer_destroy(ddp_optimizer* optimizer) {
  (void)guarded([&] { (void)OptimizerTable::instance().remove(optimizer); });
}

ddp_status ddp_optimizer_set_rate(ddp_optimizer* optimizer, double rate) {
  return run_local(optimizer, "ddp_optimizer_set_rate", [&](ddp::optim::Optimizer& object) { object.set_rate(rate); });
}

ddp_status ddp_optimizer_get_rate(const ddp_optimizer* optimizer, double* out_rate) {
  return guarded([&] {
    const auto of = object_of(optimizer, "ddp_optimizer_get_rate");
    require(out_rate, "ddp_optimizer_get_rate", "out_rate");
    *out_rate = of->rate();
  });
}

ddp_status ddp_optimizer_get_step_count(const ddp_optimizer* optimizer, int64_t* out_count) {
  return guarded([&] {
    const auto of = object_of(optimizer, "ddp_optimizer_get_step_count");
    require(out_count, "ddp_optimizer_get_step_count", "out_count");
    *out_count = of->step_count();
  });
}

ddp_status ddp_loss_scale_options_init(ddp_loss_scale_options* options, int64_t struct_size) {
  return guarded(
      [&] { init_options(options, struct_size, ddp::optim::default_loss_scale_options(), "ddp_loss_scale_options_init"); });
}

ddp_status ddp_optimizer_set_loss_scale(ddp_optimizer* optimizer, const ddp_loss_scale_options* options) {
  constexpr const char* kFunction = "ddp_optimizer_set_loss_scale";
  return run_local(optimizer, kFunction, [&](ddp::optim::Optimizer& object) {
    const ddp_loss_scale_options read = read_options(options, ddp::optim::default_loss_scale_options(), kFunction);
    ddp::optim::check_loss_scale_options(read, kFunction);
    object.set_loss_scale(read);
  });
}

ddp_status ddp_optimizer_get_loss_scale(const ddp_optimizer* optimizer, double* out_scale) {
  return guarded([&] {
    const auto of = object_of(optimizer, "ddp_optimizer_get_loss_scale");
    require(out_scale, "ddp_optimizer_get_loss_scale", "out_scale");
    *out_scale = of->loss_scale();
  });
}

ddp_status ddp_optimizer_copy_loss_scale(ddp_optimizer* optimizer, const ddp_tensor* tensor, void* stream) {
  return run_local(optimizer, "ddp_optimizer_copy_loss_scale", [&](ddp::optim::Optimizer& object) {
    object.copy_loss_scale(bound_tensor(object.model().group(), tensor, "ddp_optimizer_copy_loss_scale: tensor"), stream);
  });
}

ddp_status ddp_optimizer_get_skipped_count(const ddp_optimizer* optimizer, int64_t* out_count) {
  return guarded([&] {
    const auto of = object_of(optimizer, "ddp_optimizer_get_skipped_count");
    require(out_count, "ddp_optimizer_get_skipped_count", "out_count");
    *out_count = of->skipped_count();
  });
}

ddp_status ddp_optimizer_get_grad_norm(const ddp_optimizer* optimizer, double* out_norm) {
  return guarded([&] {
    const auto of = object_of(optimizer, "ddp_optimizer_get_grad_norm");
    require(out_norm, "ddp_optimizer_get_grad_norm", "out_norm");
    *out_norm = of->grad_norm();
  });
}

ddp_status ddp_optimizer_set_parameter_options(ddp_optimizer* optimizer, int32_t index, double weight_decay,
                                               double rate_scale) {
  return run_local(optimizer, "ddp_optimizer_set_parameter_options",
                   [&](ddp::optim::Optimizer& object) { object.set_parameter_options(index, weight_decay, rate_scale); });
}

ddp_status ddp_optimizer_step(ddp_optimizer* optimizer, void* stream) {
  return run_local(optimizer, "ddp_optimizer_step", [&](ddp::optim::Optimizer& object) {
    ddp::model::Model& model = object.model();
    require_outside_program(model.group(), "ddp_optimizer_step");
    ddp::group::or_break(model.group(), ddp::group::call_if(object.steps_together()), "ddp_optimizer_step",
                         [&] { object.step(stream); });
  });
}
