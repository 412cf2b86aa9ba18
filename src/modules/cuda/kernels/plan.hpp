// SPDX-License-Identifier: Apache-2.0
// One step of an optimizer as the device decides and counts it: optim/policy.cpp's decide, optim/loss_scale.cpp's count and
// the scalars of optim/rules.cpp, operation by operation in F64, so that their bits are the host's. Pure functions, also for
// the host.
// Tested by unit/cuda/plan_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "modules/cuda/kernels/decide.hpp"

namespace ddp::cuda {

/// base^exponent by repeated squaring, as optim::power.
DDP_HD double power_of(double base, int64_t exponent) noexcept {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

/// A step was made, or left out because of its gradients.
DDP_HD void count_for_loss_scale(ddp_gpu_progress& progress, bool made) noexcept {
  if (progress.interval <= 0) return;
  if (!made) {
    const double less = progress.loss_scale * progress.backoff;
    progress.loss_scale = less < progress.minimum ? progress.minimum : less;
    progress.good_steps = 0;
  } else if (++progress.good_steps >= progress.interval) {
    const double more = progress.loss_scale * progress.growth;
    progress.loss_scale = progress.maximum < more ? progress.maximum : more;
    progress.good_steps = 0;
  }
}

/// Decides about the step and counts it. `words` as in ddp_gpu_step.
DDP_HD ddp_gpu_gate planned_gate(ddp_gpu_progress& progress, const int64_t* words, double max_norm,
                                 bool skip_nonfinite) noexcept {
  ddp_gpu_gate gate{1.0 / progress.loss_scale, 0, 0, 0};
  if (words != nullptr) {
    gate = decided(words, progress.loss_scale, max_norm, skip_nonfinite || progress.interval > 0);
    progress.norm = gate.norm;
    count_for_loss_scale(progress, gate.skip == 0);
  }
  if (gate.skip != 0)
    ++progress.skipped;
  else
    ++progress.steps;
  return gate;
}

DDP_HD ddp_gpu_adam_rule planned_adam_rule(const ddp_gpu_rule_options& options, double rate, double weight_decay,
                                           int64_t steps_before) noexcept {
  const bool decoupled = options.decoupled == 1;
  ddp_gpu_adam_rule rule{};
  rule.keep = decoupled ? 1.0 - rate * weight_decay : 1.0;
  rule.weight_decay = decoupled ? 0.0 : weight_decay;
  rule.beta1 = options.beta1;
  rule.share1 = 1.0 - options.beta1;
  rule.beta2 = options.beta2;
  rule.share2 = 1.0 - options.beta2;
  rule.size = rate / (1.0 - power_of(options.beta1, steps_before + 1));
  rule.root_scale = 1.0 / sqrt(1.0 - power_of(options.beta2, steps_before + 1));
  rule.epsilon = options.epsilon;
  return rule;
}

DDP_HD ddp_gpu_sgd_rule planned_sgd_rule(const ddp_gpu_rule_options& options, double rate, double weight_decay,
                                         int64_t steps_before) noexcept {
  ddp_gpu_sgd_rule rule{};
  rule.rate = rate;
  rule.weight_decay = weight_decay;
  rule.momentum = options.momentum;
  rule.gradient_share = 1.0 - options.dampening;
  if (options.momentum != 0) rule.mode = steps_before == 0 ? 1 : 2;
  rule.nesterov = options.nesterov == 1 ? 1 : 0;
  return rule;
}

/// The scalars of a parameter, whose step is counted if it makes one.
DDP_HD ddp_gpu_planned_rule planned_rule(const ddp_gpu_rule_options& options, double rate, ddp_gpu_parameter& parameter,
                                         bool takes_part) noexcept {
  ddp_gpu_planned_rule rule{};
  if (!takes_part || parameter.rate_scale == 0) return rule;
  const double own_rate = rate * parameter.rate_scale;
  if (options.is_adam != 0)
    rule.adam = planned_adam_rule(options, own_rate, parameter.weight_decay, parameter.steps);
  else
    rule.sgd = planned_sgd_rule(options, own_rate, parameter.weight_decay, parameter.steps);
  rule.active = 1;
  ++parameter.steps;
  return rule;
}

}  // namespace ddp::cuda
