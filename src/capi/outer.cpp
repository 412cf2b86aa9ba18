// SPDX-License-Identifier: Apache-2.0
// ddp/outer.h.
#include "ddp/outer.h"

#include <cstring>

#include "capi/guard.hpp"
#include "capi/options.hpp"
#include "capi/state_tables.hpp"
#include "model/replicas.hpp"

using namespace ddp::capi;

namespace {

void refuse_second(ddp::model::Model& model) {
  for (const auto& state : model.replicas().kept_equal())
    if (std::strcmp(state->kind(), "outer") == 0)
      throw ddp::Error(DDP_ERROR_INVALID_STATE,
                       "ddp_outer_create: the model has an outer optimizer; destroy it with ddp_outer_destroy first");
}

}  // namespace

ddp_status ddp_outer_options_init(ddp_outer_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, ddp::outer::default_options(), "ddp_outer_options_init"); });
}

ddp_status ddp_outer_create(ddp_model* model, const ddp_outer_options* options, ddp_outer** out_outer) {
  constexpr const char* kName = "ddp_outer_create";
  return guarded([&] {
    auto of = model_of(model, kName);
    require(out_outer, kName, "out_outer");
    const ddp_outer_options read = read_options(options, ddp::outer::default_options(), kName);
    refuse_second(*of);
    auto outer = std::make_shared<ddp::outer::Outer>(std::move(of), read);
    outer->model().replicas().keep_equal(outer);
    *out_outer = OuterTable::instance().add(outer);
  });
}

void ddp_outer_destroy(ddp_outer* outer) {
  (void)guarded([&] { (void)OuterTable::instance().remove(outer); });
}

ddp_status ddp_outer_step(ddp_outer* outer) {
  return run_collective(outer, "ddp_outer_step", [](ddp::outer::Outer& object) { object.step(); });
}

ddp_status ddp_outer_sync(ddp_outer* outer) {
  return run_collective(outer, "ddp_outer_sync", [](ddp::outer::Outer& object) { object.sync(); });
}

ddp_status ddp_outer_get_stats(const ddp_outer* outer, ddp_outer_stats* out_stats) {
  constexpr const char* kName = "ddp_outer_get_stats";
  return run_local(outer, kName, [&](ddp::outer::Outer& object) {
    require(out_stats, kName, "out_stats");
    ddp_outer_stats stats{};
    object.fill(stats);
    fill_sized(out_stats, stats, kName);
  });
}
