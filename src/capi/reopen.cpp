// SPDX-License-Identifier: Apache-2.0
// ddp/reopen.h.
#include "ddp/reopen.h"

#include "capi/tables.hpp"
#include "model/reopened.hpp"

using namespace ddp;
using namespace ddp::capi;

ddp_status ddp_model_reopen(ddp_model* model, void* stream) {
  return run_collective(model, "ddp_model_reopen", [&](model::Model& object) { model::Reopened::begin(object, stream); });
}

ddp_status ddp_model_remove_parameter(ddp_model* model, int32_t index) {
  return run_local(model, "ddp_model_remove_parameter",
                   [&](model::Model& object) { model::Reopened::remove_parameter(object, index); });
}

ddp_status ddp_model_remove_buffer(ddp_model* model, int32_t index) {
  return run_local(model, "ddp_model_remove_buffer",
                   [&](model::Model& object) { model::Reopened::remove_buffer(object, index); });
}
