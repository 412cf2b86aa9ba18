// SPDX-License-Identifier: Apache-2.0
// What is no handle is refused by every function that takes one: NULL, an address that no function gave, the handle of
// another kind, and that of an object that was destroyed. The text has the function's name, and nothing is written.

#include "support/check.hpp"
#include "support/handle_calls.hpp"
#include "support/public_api.hpp"

/// One address as the handle of every kind.
Handles all_as(void* what) {
  return {static_cast<ddp_group*>(what),  static_cast<ddp_model*>(what),  static_cast<ddp_optimizer*>(what),
          static_cast<ddp_ema*>(what),    static_cast<ddp_bucket*>(what), static_cast<ddp_outer*>(what),
          static_cast<ddp_request*>(what)};
}

/// One of each kind that a program may keep.
Handles live_ones() {
  static float value[4] = {1, 2, 3, 4};
  const double decay = 0.5;
  Handles h;
  h.group = create_group("local://alone", patient_options(0, 1));
  OK(ddp_model_create(h.group, nullptr, &h.model));
  OK(ddp_model_add_array(h.model, "w", value, nullptr, 4, nullptr));
  OK(ddp_model_commit(h.model, nullptr));
  OK(ddp_optimizer_create_sgd(h.model, nullptr, nullptr, &h.optimizer));
  OK(ddp_ema_create(h.model, &decay, 1, &h.ema));
  OK(ddp_outer_create(h.model, nullptr, &h.outer));
  OK(ddp_group_post_barrier(h.group, &h.request));
  return h;
}

void destroy(const Handles& h) {
  ddp_request_destroy(h.request);
  ddp_outer_destroy(h.outer);
  ddp_ema_destroy(h.ema);
  ddp_optimizer_destroy(h.optimizer);
  ddp_model_destroy(h.model);
  ddp_group_destroy(h.group);
}

void expect_refused(const Handles& h, const std::string& what) {
  handle_calls::wanted = DDP_ERROR_INVALID_ARGUMENT;
  for (const HandleCall& call : all_handle_calls) {
    (void)ddp_group_barrier(nullptr);  // another text
    expect(call.is_refused(h), what + ": " + call.name);
    if (std::strstr(call.name, "_destroy") != nullptr) continue;
    const std::string text = ddp_last_error();
    expect(text.find(std::string(call.name) + ": ") == 0, what + ": " + call.name + " says " + text);
    expect(text.find("NULL") != std::string::npos || text.find("live handle") != std::string::npos, text);
    expect(handle_calls::lasting_memory(true).is_untouched(), what + ": " + call.name + " writes nothing");
  }
}

ddp_case(what_is_no_handle_is_refused) {
  static char memory[64];
  expect_refused(Handles{}, "NULL");
  for (void* const address :
       {reinterpret_cast<void*>(8), reinterpret_cast<void*>(~uintptr_t{0}), reinterpret_cast<void*>(0x00dead00d1),
        reinterpret_cast<void*>(0x10000000d2), static_cast<void*>(memory)})
    expect_refused(all_as(address), "an address");
}

ddp_case(a_handle_of_another_kind_is_refused) {
  const Handles live = live_ones();
  Handles others = all_as(live.group);
  others.group = reinterpret_cast<ddp_group*>(live.model);
  expect_refused(others, "of another kind");
  OK(ddp_group_barrier(live.group));
  destroy(live);
}

ddp_case(the_handle_of_what_was_destroyed_is_refused) {
  const Handles gone = live_ones();
  destroy(gone);
  const Handles live = live_ones();  // most likely in the same places
  expect_refused(gone, "destroyed");
  OK(ddp_group_barrier(live.group));
  destroy(live);
}
