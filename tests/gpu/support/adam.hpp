// SPDX-License-Identifier: Apache-2.0
// An Adam for tests whose result one process on the CPU knows too.
#pragma once

#include "gpu/support/calls.hpp"

namespace ddp::test::card {

struct AdamWays {
  bool shard = false, in_backward = false, own_gradients = false;
  double max_norm = 0;
};

inline OptimizerHandle adam(ddp_model* model, const AdamWays& ways) {
  auto options = defaults<ddp_adam_options>();
  auto shared = defaults<ddp_optimizer_options>();
  options.rate = 0.01;
  shared.shard = ways.shard;
  shared.in_backward = ways.in_backward;
  shared.max_norm = ways.max_norm;
  ddp_optimizer* made = nullptr;
  OK(ddp_optimizer_create_adam(model, &options, &shared, &made));
  return OptimizerHandle(made);
}

}  // namespace ddp::test::card
