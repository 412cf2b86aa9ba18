// SPDX-License-Identifier: Apache-2.0
// How far an optimizer has come: what its steps change besides parameters and state. A value: loading builds a new one.
// Tested by unit/optim/optimizer_test.cpp and gpu_host/capture_test.cpp.
#pragma once

#include <cstdint>

#include "optim/loss_scale.hpp"
#include "optim/param_groups.hpp"

namespace ddp::optim {

inline constexpr double kNoNorm = -1;

struct Progress {
  ParamGroups groups;  // rate and step counts too
  LossScale loss_scale{};
  int64_t skipped = 0;
  double norm = kNoNorm;  // of the last step that looked at the whole gradient
};

}  // namespace ddp::optim
