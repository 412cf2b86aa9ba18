// SPDX-License-Identifier: Apache-2.0
#include "optim/rules.hpp"

#include <cmath>

#include "core/error.hpp"
#include "optim/policy.hpp"

namespace ddp::optim {
namespace {

void check_share(double value, const char* where, const char* what, ddp_status status) {
  if (!(value >= 0 && value < 1))
    throw make_error(status, "%s: %s is %g; it must be 0 or more and below 1", where, what, value);
}

void check_switch(int32_t value, const char* where, const char* what, ddp_status status) {
  if (value != 0 && value != 1) throw make_error(status, "%s: %s is %d; 0 and 1 are possible", where, what, value);
}

void check_zero(int32_t reserved, const char* where, ddp_status status) {
  if (reserved != 0) throw make_error(status, "%s: reserved is %d; it must be 0", where, reserved);
}

}  // namespace

ddp_optimizer_options default_optimizer_options() noexcept {
  ddp_optimizer_options options{};
  options.struct_size = sizeof options;
  options.undo = 1;
  return options;
}

ddp_sgd_options default_sgd_options() noexcept {
  ddp_sgd_options options{};
  options.struct_size = sizeof options;
  options.rate = 0.01;
  return options;
}

ddp_adam_options default_adam_options() noexcept {
  ddp_adam_options options{};
  options.struct_size = sizeof options;
  options.rate = 0.001;
  options.beta1 = 0.9;
  options.beta2 = 0.999;
  options.epsilon = 1e-8;
  options.weight_decay = 0.01;
  options.decoupled = 1;
  return options;
}

void check_not_negative(double value, const char* where, const char* what, ddp_status status) {
  if (!(value >= 0 && std::isfinite(value)))
    throw make_error(status, "%s: %s is %g; it must be finite and 0 or more", where, what, value);
}

void check_optimizer_options(const ddp_optimizer_options& options, const char* where) {
  constexpr ddp_status kStatus = DDP_ERROR_INVALID_ARGUMENT;
  check_switch(options.shard, where, "shard", kStatus);
  check_switch(options.in_backward, where, "in_backward", kStatus);
  check_switch(options.undo, where, "undo", kStatus);
  check_switch(options.master_weights, where, "master_weights", kStatus);
  check_switch(options.divide_in_step, where, "divide_in_step", kStatus);
  check_switch(options.late_values, where, "late_values", kStatus);
  check_zero(options.reserved, where, kStatus);
  if (options.late_values != 0 && (options.shard == 0 || options.in_backward != 0))
    throw make_error(kStatus,
                     "%s: late_values is 1 with shard = %d and in_backward = %d; values come late only from steps at "
                     "ddp_optimizer_step (in_backward 0) that the ranks share out (shard 1)",
                     where, options.shard, options.in_backward);
  check_policy(policy_of(options), where, kStatus);
}

void check_sgd_options(const ddp_sgd_options& options, const char* where, ddp_status status) {
  check_not_negative(options.rate, where, "rate", status);
  check_not_negative(options.momentum, where, "momentum", status);
  check_not_negative(options.weight_decay, where, "weight_decay", status);
  check_switch(options.nesterov, where, "nesterov", status);
  check_zero(options.reserved, where, status);
  if (!std::isfinite(options.dampening))
    throw make_error(status, "%s: dampening is %g; it must be finite", where, options.dampening);
  if (options.nesterov == 1 && !(options.momentum > 0 && options.dampening == 0))
    throw make_error(status, "%s: nesterov needs momentum above 0 and dampening 0, but momentum is %g and dampening %g",
                     where, options.momentum, options.dampening);
}

void check_adam_options(const ddp_adam_options& options, const char* where, ddp_status status) {
  check_not_negative(options.rate, where, "rate", status);
  check_share(options.beta1, where, "beta1", status);
  check_share(options.beta2, where, "beta2", status);
  check_not_negative(options.epsilon, where, "epsilon", status);
  if (static_cast<float>(options.epsilon) == 0)
    throw make_error(status,
                     "%s: epsilon is %g, which F32 cannot tell from 0: an element without a gradient so far would become "
                     "NaN (default 1e-8)",
                     where, options.epsilon);
  check_not_negative(options.weight_decay, where, "weight_decay", status);
  check_switch(options.decoupled, where, "decoupled", status);
  check_zero(options.reserved, where, status);
}

double power(double base, int64_t exponent) noexcept {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

cpu::SgdStep sgd_step(const ddp_sgd_options& options, double rate, double weight_decay, int64_t steps_before) noexcept {
  cpu::SgdStep step;
  step.rate = rate;
  step.weight_decay = weight_decay;
  step.momentum = options.momentum;
  step.gradient_share = 1.0 - options.dampening;
  step.nesterov = options.nesterov == 1;
  if (options.momentum != 0) step.mode = steps_before == 0 ? cpu::Momentum::kFirst : cpu::Momentum::kRunning;
  return step;
}

cpu::AdamStep adam_step(const ddp_adam_options& options, double rate, double weight_decay, int64_t steps_before) noexcept {
  const bool decoupled = options.decoupled == 1;
  cpu::AdamStep step;
  step.keep = decoupled ? 1.0 - rate * weight_decay : 1.0;
  step.weight_decay = decoupled ? 0.0 : weight_decay;
  step.beta1 = options.beta1;
  step.share1 = 1.0 - options.beta1;
  step.beta2 = options.beta2;
  step.share2 = 1.0 - options.beta2;
  step.size = rate / (1.0 - power(options.beta1, steps_before + 1));
  step.root_scale = 1.0 / std::sqrt(1.0 - power(options.beta2, steps_before + 1));
  step.epsilon = options.epsilon;
  return step;
}

device::AdamRule rule_of(const cpu::AdamStep& step) noexcept {
  return {step.keep,   step.weight_decay, step.beta1,      step.share1, step.beta2,
          step.share2, step.size,         step.root_scale, step.epsilon};
}

device::SgdRule rule_of(const cpu::SgdStep& step) noexcept {
  return {step.rate,
          step.weight_decay,
          step.momentum,
          step.gradient_share,
          static_cast<int32_t>(step.mode),
          step.nesterov ? 1 : 0};
}

}  // namespace ddp::optim
