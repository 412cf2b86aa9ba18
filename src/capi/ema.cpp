// SPDX-License-Identifier: Apache-2.0
// ddp/ema.h.
#include "ddp/ema.h"

#include <vector>

#include "capi/guard.hpp"
#include "capi/state_tables.hpp"
#include "model/replicas.hpp"

using namespace ddp::capi;

ddp_status ddp_ema_create(ddp_model* model, const double* decays, int32_t count, ddp_ema** out_ema) {
  return guarded([&] {
    auto of = model_of(model, "ddp_ema_create");
    require(decays, "ddp_ema_create", "decays");
    require(out_ema, "ddp_ema_create", "out_ema");
    if (count < 1 || count > 16)
      throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_create: count is %d; 1 to 16 decays are possible", count);
    auto ema = std::make_shared<ddp::optim::Ema>(std::move(of), std::vector<double>(decays, decays + count));
    ema->model().replicas().keep_equal(ema);
    *out_ema = EmaTable::instance().add(ema);  // last: without a handle the program could not destroy it
  });
}

void ddp_ema_destroy(ddp_ema* ema) {
  (void)guarded([&] { (void)EmaTable::instance().remove(ema); });
}

ddp_status ddp_ema_update(ddp_ema* ema, void* stream) {
  return run_local(ema, "ddp_ema_update", [&](ddp::optim::Ema& object) { object.update(stream); });
}

ddp_status ddp_ema_swap(ddp_ema* ema, int32_t which, void* stream) {
  return run_local(ema, "ddp_ema_swap", [&](ddp::optim::Ema& object) { object.swap(which, stream); });
}
