// SPDX-License-Identifier: Apache-2.0
// ddp/backward.h: what works on gradients between the passes.
#include "model/gradients.hpp"

#include "capi/tables.hpp"
#include "ddp/backward.h"
#include "model/optimizer_slot.hpp"

using namespace ddp;
using namespace ddp::capi;

ddp_status ddp_model_zero_grad(ddp_model* model, void* stream) {
  return run_local(model, "ddp_model_zero_grad", [&](model::Model& object) { object.gradients().zero(stream); });
}

ddp_status ddp_model_mark_reduced(ddp_model* model) {
  return run_local(model, "ddp_model_mark_reduced", [](model::Model& object) { object.gradients().take_reduced(); });
}

ddp_status ddp_model_get_grad_norm(ddp_model* model, double p, double* out_norm, void* stream) {
  constexpr const char* kName = "ddp_model_get_grad_norm";
  return run_local(model, kName, [&](model::Model& object) {
    require(out_norm, kName, "out_norm");
    *out_norm = group::or_break(object.group(), group::call_if(object.optimizer_slot().is_sharded()), kName,
                                [&] { return object.gradients().norm(p, stream); });
  });
}

ddp_status ddp_model_clip_grad_norm(ddp_model* model, double max_norm, double p, double* out_norm, void* stream) {
  constexpr const char* kName = "ddp_model_clip_grad_norm";
  return run_local(model, kName, [&](model::Model& object) {
    const double norm = group::or_break(object.group(), group::call_if(object.optimizer_slot().is_sharded()), kName,
                                        [&] { return object.gradients().clip_norm(max_norm, p, stream); });
    if (out_norm != nullptr) *out_norm = norm;
  });
}

ddp_status ddp_model_clip_grad_value(ddp_model* model, double limit, void* stream) {
  return run_local(model, "ddp_model_clip_grad_value",
                   [&](model::Model& object) { object.gradients().clip_value(limit, stream); });
}

ddp_status ddp_model_scale_grad(ddp_model* model, double factor, void* stream) {
  return run_local(model, "ddp_model_scale_grad", [&](model::Model& object) { object.gradients().scale(factor, stream); });
}
