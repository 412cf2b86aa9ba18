// SPDX-License-Identifier: Apache-2.0
#include "optim/loss_scale.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace ddp::optim {

ddp_loss_scale_options default_loss_scale_options() noexcept {
  ddp_loss_scale_options options{};
  options.struct_size = sizeof options;
  options.initial = 65536;
  options.growth = 2;
  options.backoff = 0.5;
  options.minimum = 1;
  options.maximum = 16777216;
  options.interval = 2000;
  return options;
}

void check_loss_scale_options(const ddp_loss_scale_options& options, const char* where, ddp_status status) {
  const auto check = [&](bool good, const char* what, double value, const char* rule) {
    if (!good) throw make_error(status, "%s: %s is %g; it must be %s", where, what, value, rule);
  };
  check(options.initial > 0 && std::isfinite(options.initial), "initial", options.initial, "finite and above 0");
  check(options.interval >= 0, "interval", static_cast<double>(options.interval), "0 (a fixed scale) or more steps");
  if (options.interval == 0) return;
  check(options.growth >= 1 && std::isfinite(options.growth), "growth", options.growth, "finite and 1 or more");
  check(options.backoff > 0 && options.backoff <= 1, "backoff", options.backoff, "above 0 and at most 1");
  check(options.minimum > 0 && options.minimum <= options.initial, "minimum", options.minimum,
        "above 0 and at most initial");
  check(options.maximum >= options.initial && std::isfinite(options.maximum), "maximum", options.maximum,
        "finite and at least initial");
}

LossScale::LossScale(const ddp_loss_scale_options& options) noexcept : options_(options), scale_(options.initial) {}

void LossScale::count(bool good) noexcept {
  if (!is_dynamic()) return;
  if (!good) {
    scale_ = std::max(scale_ * options_.backoff, options_.minimum);
    good_steps_ = 0;
  } else if (++good_steps_ >= options_.interval) {
    scale_ = std::min(scale_ * options_.growth, options_.maximum);
    good_steps_ = 0;
  }
}

void LossScale::add_fields(Fields& fields) const {
  fields["loss_scale"] = number_text(scale_);
  fields["loss_scale.good_steps"] = std::to_string(good_steps_);
  fields["loss_scale.interval"] = std::to_string(options_.interval);
  fields["loss_scale.growth"] = number_text(options_.growth);
  fields["loss_scale.backoff"] = number_text(options_.backoff);
  fields["loss_scale.minimum"] = number_text(options_.minimum);
  fields["loss_scale.maximum"] = number_text(options_.maximum);
}

LossScale LossScale::from_fields(const Fields& fields) {
  ddp_loss_scale_options options = default_loss_scale_options();
  options.initial = read_number(fields, "loss_scale");
  options.interval = read_count(fields, "loss_scale.interval");
  options.growth = read_number(fields, "loss_scale.growth");
  options.backoff = read_number(fields, "loss_scale.backoff");
  options.minimum = read_number(fields, "loss_scale.minimum");
  options.maximum = read_number(fields, "loss_scale.maximum");
  check_loss_scale_options(options, "the checkpoint", DDP_ERROR_IO);
  LossScale scale(options);
  scale.good_steps_ = read_count(fields, "loss_scale.good_steps");
  return scale;
}

}  // namespace ddp::optim
