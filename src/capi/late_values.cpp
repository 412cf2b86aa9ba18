// SPDX-License-Identifier: Apache-2.0
// ddp/late_values.h.
#include "ddp/late_values.h"

#include "capi/tables.hpp"
#include "model/late_values.hpp"

using namespace ddp;
using namespace ddp::capi;

ddp_status ddp_model_wait_value(ddp_model* model, int32_t index, void* /*stream*/) {
  constexpr const char* kName = "ddp_model_wait_value";
  return run_local(model, kName, [&](model::Model& object) {
    check_index(object, index, kName);
    require_outside_program(object.group(), kName);
    model::wait_value(object, index);
  });
}

ddp_status ddp_model_wait_values(ddp_model* model) {
  constexpr const char* kName = "ddp_model_wait_values";
  return run_local(model, kName, [&](model::Model& object) {
    require_outside_program(object.group(), kName);
    model::wait_values(object);
  });
}

int32_t ddp_model_value_ready(const ddp_model* model, int32_t index) {
  constexpr const char* kName = "ddp_model_value_ready";
  return guarded_value<int32_t>(-1, [&] {
    const auto object = model_of(model, kName);
    check_index(*object, index, kName);
    return or_first_cause(object->group(), [&] { return model::value_is_ready(*object, index); }) ? 1 : 0;
  });
}
