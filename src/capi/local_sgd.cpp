// SPDX-License-Identifier: Apache-2.0
// ddp/local_sgd.h.
#include "ddp/local_sgd.h"

#include "capi/tables.hpp"
#include "model/average.hpp"

using namespace ddp;
using namespace ddp::capi;

ddp_status ddp_model_average_parameters(ddp_model* model, void* stream) {
  return run_collective(model, "ddp_model_average_parameters",
                        [&](model::Model& object) { average_parameters(object, stream); });
}
