// SPDX-License-Identifier: Apache-2.0
// What a built-in optimizer does around its rule: where its work runs, and whether and how a step takes the gradients that
// it finds. Values and pure functions; every rank decides from the same numbers, so all decide alike.
// Tested by unit/optim/policy_test.cpp.
#pragma once

#include <cstdint>

#include "ddp/optimizer.h"
#include "device/cpu/update_kernels.hpp"
#include "optim/loss_scale.hpp"

namespace ddp::optim {

struct Policy {
  bool shard = false;
  bool in_backward = false;
  bool undo = true;
  bool divide_in_step = false;
  bool master_weights = false;
  bool late_values = false;
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  double max_norm = 0;    // 0: no clipping by norm
  double clip_value = 0;  // 0: no clipping by value
};

[[nodiscard]] Policy policy_of(const ddp_optimizer_options& options) noexcept;

/// Throws `status`; `where` as in rules.hpp.
void check_policy(const Policy& policy, const char* where, ddp_status status = DDP_ERROR_INVALID_ARGUMENT);

/// Must the whole gradient be known before the first parameter changes?
[[nodiscard]] bool needs_whole_gradient(const Policy& policy, const LossScale& scale) noexcept;

/// What happens to a step. `norm`: the 2-norm of the gradients in memory; `finite`: they are.
struct Decision {
  enum class Kind { kStep, kSkip, kFail } kind = Kind::kStep;
  cpu::GradShape shape;
  double norm = 0;  // of the true gradients: without the loss scale, before clipping
};
[[nodiscard]] Decision decide(const Policy& policy, const LossScale& scale, double norm, bool finite) noexcept;
/// For steps that do not need the whole gradient.
[[nodiscard]] cpu::GradShape plain_shape(const Policy& policy, const LossScale& scale) noexcept;

}  // namespace ddp::optim
