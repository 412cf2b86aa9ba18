// SPDX-License-Identifier: Apache-2.0
// ddp/backward.h: the passes. gradients.cpp has what works on gradients between them.
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
