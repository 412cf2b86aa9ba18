// SPDX-License-Identifier: Apache-2.0
// From options, a rate and a number of steps to the scalars of one step. Pure; all in F64 with additions, multiplications,
// divisions and one square root, no libm, so that every rank gets the same bits on every machine.
// Any thread.
// Tested by unit/optim/rules_test.cpp.
#pragma once

#include <cstdint>

#include "ddp/optimizer.h"
#include "device/cpu/update_kernels.hpp"
#include "device/device.hpp"

namespace ddp::optim {

/// Defaults as documented in ddp/optimizer.h, struct_size included.
[[nodiscard]] ddp_optimizer_options default_optimizer_options() noexcept;
[[nodiscard]] ddp_sgd_options default_sgd_options() noexcept;
[[nodiscard]] ddp_adam_options default_adam_options() noexcept;

/// Throw `status` that names the field; `where` is the public function, or "the checkpoint" (then the status is IO).
void check_optimizer_options(const ddp_optimizer_options& options, const char* where);
void check_sgd_options(const ddp_sgd_options& options, const char* where, ddp_status status = DDP_ERROR_INVALID_ARGUMENT);
void check_adam_options(const ddp_adam_options& options, const char* where, ddp_status status = DDP_ERROR_INVALID_ARGUMENT);
/// A learning rate, weight decay or factor: finite, 0 or more.
void check_not_negative(double value, const char* where, const char* what, ddp_status status = DDP_ERROR_INVALID_ARGUMENT);

/// The step of a parameter that has seen `steps_before` steps; rate and weight decay are the parameter's own.
[[nodiscard]] cpu::SgdStep sgd_step(const ddp_sgd_options& options, double rate, double weight_decay,
                                    int64_t steps_before) noexcept;
[[nodiscard]] cpu::AdamStep adam_step(const ddp_adam_options& options, double rate, double weight_decay,
                                      int64_t steps_before) noexcept;

/// The scalars of a step as a device takes them; the shape is passed separately.
[[nodiscard]] device::AdamRule rule_of(const cpu::AdamStep& step) noexcept;
[[nodiscard]] device::SgdRule rule_of(const cpu::SgdStep& step) noexcept;

/// base^exponent by repeated squaring; exponent 0 or more.
[[nodiscard]] double power(double base, int64_t exponent) noexcept;

}  // namespace ddp::optim
