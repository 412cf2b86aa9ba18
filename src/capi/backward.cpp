// SPDX-License-Identifier: Apache-2.0
// ddp/backward.h.
#include "ddp/backward.h"

#include "capi/tables.hpp"

using namespace ddp;
using namespace ddp::capi;

ddp_status ddp_model_begin_backward(ddp_model* model, ddp_pass mode) {
  return run_collective(model, "ddp_model_begin_backward", [&](model::Model& object) { object.begin_backward(mode); });
}

ddp_status ddp_model_mark_ready(ddp_model* model, int32_t index, void* stream) {
  return collective_short(model, "ddp_model_mark_ready", [&](model::Model& object) {
    check_index(object, index, "ddp_model_mark_ready");
    object.pass().mark_ready(index, stream);
  });
}

ddp_status ddp_model_mark_range_ready(ddp_model* model, int32_t index, int64_t first, int64_t count, void* stream) {
  return collective_short(model, "ddp_model_mark_range_ready", [&](model::Model& object) {
    check_index(object, index, "ddp_model_mark_range_ready");
    object.pass().mark_range_ready(index, first, count, stream);
  });
}

ddp_status ddp_model_mark_unused(ddp_model* model, int32_t index) {
  return collective_short(model, "ddp_model_mark_unused", [&](model::Model& object) {
    check_index(object, index, "ddp_model_mark_unused");
    object.pass().mark_unused(index);
  });
}

ddp_status ddp_model_end_backward(ddp_model* model, void* stream) {
  return run_collective(model, "ddp_model_end_backward", [&](model::Model& object) { object.end_backward(stream); });
}

int32_t ddp_model_was_used(const ddp_model* model, int32_t index) {
  return guarded_value<int32_t>(-1, [&] {
    const auto object = model_of(model, "ddp_model_was_used");
    check_index(*object, index, "ddp_model_was_used");
    return or_first_cause(object->group(), [&] {
      if (!object->is_committed() || !object->pass().results().has_reduced())
        throw Error(DDP_ERROR_INVALID_STATE,
                    "ddp_model_was_used: no pass with DDP_PASS_REDUCE or DDP_PASS_LOCAL has ended yet");
      return object->pass().results().was_used(index) ? 1 : 0;
    });
  });
}

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
