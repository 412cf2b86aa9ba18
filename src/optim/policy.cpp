// SPDX-License-Identifier: Apache-2.0
#include "optim/policy.hpp"

#include <cmath>

#include "core/error.hpp"
#include "optim/rules.hpp"

namespace ddp::optim {
namespace {

constexpr double kNormGuard = 1e-6;  // as torch.nn.utils.clip_grad_norm_ has it

}  // namespace

Policy policy_of(const ddp_optimizer_options& options) noexcept {
  Policy policy;
  policy.shard = options.shard != 0;
  policy.in_backward = options.in_backward != 0;
  policy.undo = options.undo != 0;
  policy.divide_in_step = options.divide_in_step != 0;
  policy.master_weights = options.master_weights != 0;
  policy.late_values = options.late_values != 0;
  policy.nonfinite = options.nonfinite;
  policy.max_norm = options.max_norm;
  policy.clip_value = options.clip_value;
  return policy;
}

void check_policy(const Policy& policy, const char* where, ddp_status status) {
  check_not_negative(policy.max_norm, where, "max_norm", status);
  check_not_negative(policy.clip_value, where, "clip_value", status);
  if (policy.nonfinite < DDP_NONFINITE_KEEP || policy.nonfinite > DDP_NONFINITE_FAIL)
    throw make_error(status, "%s: nonfinite is %d; it is DDP_NONFINITE_KEEP (0), SKIP (1) or FAIL (2)", where,
                     static_cast<int>(policy.nonfinite));
}

bool needs_whole_gradient(const Policy& policy, const LossScale& scale) noexcept {
  return policy.max_norm > 0 || policy.nonfinite != DDP_NONFINITE_KEEP || scale.is_dynamic();
}

cpu::GradShape plain_shape(const Policy& policy, const LossScale& scale) noexcept {
  cpu::GradShape shape;
  shape.scale = 1.0 / scale.scale();
  if (policy.clip_value > 0) shape.limit = policy.clip_value;
  return shape;
}

Decision decide(const Policy& policy, const LossScale& scale, double norm, bool finite) noexcept {
  Decision decision;
  decision.norm = norm / scale.scale();
  decision.shape = plain_shape(policy, scale);
  if (!finite && policy.nonfinite == DDP_NONFINITE_FAIL) decision.kind = Decision::Kind::kFail;
  if (!finite && (policy.nonfinite == DDP_NONFINITE_SKIP || scale.is_dynamic())) decision.kind = Decision::Kind::kSkip;
  if (policy.max_norm > 0) {
    const double factor = policy.max_norm / (decision.norm + kNormGuard);
    if (!(factor >= 1)) decision.shape.scale *= factor;  // a NaN stays
  }
  return decision;
}

}  // namespace ddp::optim
