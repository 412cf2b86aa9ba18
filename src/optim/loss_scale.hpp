// SPDX-License-Identifier: Apache-2.0
// The factor that the user multiplies the loss with, so that small 16-bit gradients do not vanish, and its adaptation:
// halved and the step left out when the gradients overflowed, doubled after a number of good steps (Micikevicius et al.,
// "Mixed precision training", 2018).
// A value; all ranks feed it the same and hold the same.
// Tested by unit/optim/policy_test.cpp.
#pragma once

#include <cstdint>

#include "ddp/optimizer.h"
#include "optim/fields.hpp"

namespace ddp::optim {

/// Defaults as documented in ddp/optimizer.h, struct_size included.
[[nodiscard]] ddp_loss_scale_options default_loss_scale_options() noexcept;
void check_loss_scale_options(const ddp_loss_scale_options& options, const char* where,
                              ddp_status status = DDP_ERROR_INVALID_ARGUMENT);

class LossScale {
 public:
  /// 1, for good.
  LossScale() = default;
  /// Options must have been checked.
  explicit LossScale(const ddp_loss_scale_options& options) noexcept;

  [[nodiscard]] double scale() const noexcept { return scale_; }
  [[nodiscard]] bool is_dynamic() const noexcept { return options_.interval > 0; }
  /// A step was made or, because of its gradients, left out.
  void count(bool good) noexcept;
  /// As it was counted elsewhere.
  void resume(double scale, int64_t good_steps) noexcept {
    scale_ = scale;
    good_steps_ = good_steps;
  }
  [[nodiscard]] const ddp_loss_scale_options& options() const noexcept { return options_; }
  /// Since the scale changed last.
  [[nodiscard]] int64_t good_steps() const noexcept { return good_steps_; }

  void add_fields(Fields& fields) const;
  /// Throws MISMATCH or IO.
  [[nodiscard]] static LossScale from_fields(const Fields& fields);

 private:
  ddp_loss_scale_options options_{0, 1, 1, 1, 0, 1, 0};
  double scale_ = 1;
  int64_t good_steps_ = 0;  // since the scale changed last
};

}  // namespace ddp::optim
