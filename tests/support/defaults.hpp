// SPDX-License-Identifier: Apache-2.0
// The structures of the public API as their init functions fill them: auto options = defaults<ddp_model_options>();
#pragma once

#include <stdexcept>
#include <string>

#include "ddp/experimental.h"

namespace ddp::test {

#define ddp_fill_by(name)                                                                               \
  inline ddp_status fill_by_default(ddp_##name& made) { return ddp_##name##_init(&made, sizeof made); } \
  static_assert(sizeof(ddp_##name) > 0)
ddp_fill_by(adam_options);
ddp_fill_by(batch_norm_options);
ddp_fill_by(custom_options);
ddp_fill_by(group_options);
ddp_fill_by(loss_scale_options);
ddp_fill_by(model_options);
ddp_fill_by(optimizer_options);
ddp_fill_by(recover_options);
ddp_fill_by(sampler);
ddp_fill_by(sgd_options);
ddp_fill_by(state);
ddp_fill_by(trace_options);
#undef ddp_fill_by

template <class Made>
Made defaults() {
  Made made;
  if (fill_by_default(made) != DDP_OK) throw std::runtime_error(std::string("defaults: ") + ddp_last_error());
  return made;
}

}  // namespace ddp::test
