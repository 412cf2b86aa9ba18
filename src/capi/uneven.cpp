// SPDX-License-Identifier: Apache-2.0
// ddp/uneven.h and ddp/join.h.
#include "ddp/uneven.h"

#include "capi/lists.hpp"
#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "ddp/join.h"
#include "model/uneven.hpp"

using namespace ddp;
using namespace ddp::capi;

ddp_status ddp_model_set_weight(ddp_model* model, double weight) {
  return run_local(model, "ddp_model_set_weight", [&](model::Model& object) { set_weight(object, weight); });
}

ddp_status ddp_model_set_last_pass(ddp_model* model) {
  return run_local(model, "ddp_model_set_last_pass", [](model::Model& object) { set_last_pass(object); });
}

ddp_status ddp_model_skip_backward(ddp_model* model, void* stream) {
  return run_collective(model, "ddp_model_skip_backward", [&](model::Model& object) { skip_backward(object, stream); });
}

ddp_status ddp_model_abandon_backward(ddp_model* model, const char* reason, void* stream) {
  return run_collective(model, "ddp_model_abandon_backward",
                        [&](model::Model& object) { abandon_backward(object, reason != nullptr ? reason : "", stream); });
}

ddp_status ddp_model_get_pass_report(const ddp_model* model, ddp_pass_report* out_report) {
  constexpr const char* kFunction = "ddp_model_get_pass_report";
  return run_local(model, kFunction, [&](const model::Model& object) {
    require(out_report, kFunction, "out_report");
    ddp_pass_report report{};
    model::last_attendance(object, kFunction).fill_report(report);
    fill_sized(out_report, report, kFunction);
  });
}

ddp_status ddp_model_get_absent(const ddp_model* model, int32_t* ranks, int32_t capacity, int32_t* out_count) {
  constexpr const char* kFunction = "ddp_model_get_absent";
  return run_local(model, kFunction, [&](const model::Model& object) {
    const ListTo to{ranks, capacity, out_count};
    check_list(to, "ranks", kFunction);
    write_list(to, model::last_attendance(object, kFunction).absent());
  });
}

ddp_status ddp_model_join(ddp_model* model, void* stream) {
  return run_collective(model, "ddp_model_join", [&](model::Model& object) { join(object, stream); });
}
