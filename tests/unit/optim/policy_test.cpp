// SPDX-License-Identifier: Apache-2.0
// What is decided about a step, and the loss scale, against the formulas that PyTorch documents for clip_grad_norm_ and
// GradScaler.
#include "optim/policy.hpp"

#include "support/check.hpp"

const double kNan = std::numeric_limits<double>::quiet_NaN();
using Kind = optim::Decision::Kind;

optim::LossScale scale_of(double initial, int64_t interval) {
  ddp_loss_scale_options options = optim::default_loss_scale_options();
  options.initial = initial;
  options.interval = interval;
  return optim::LossScale(options);
}

ddp_case(gradients_are_scaled_down_to_the_norm_and_never_up) {
  optim::Policy policy;
  policy.max_norm = 2;
  expect_equal(optim::decide(policy, optim::LossScale(), 8, true).shape.scale, 2 / (8 + 1e-6), "the factor of a large norm");
  expect_equal(optim::decide(policy, optim::LossScale(), 1, true).shape.scale, 1.0, "the factor of a small norm");
  expect_equal(optim::decide(policy, optim::LossScale(), 0, true).shape.scale, 1.0, "the factor of no gradient");
  expect(std::isnan(optim::decide(policy, optim::LossScale(), kNan, false).shape.scale),
         "a NaN reaches the parameters, as asked");
  policy.max_norm = 0;
  expect_equal(optim::decide(policy, optim::LossScale(), 8, true).shape.scale, 1.0, "without clipping");
}

ddp_case(the_loss_scale_is_taken_out_before_the_norm_is_looked_at) {
  optim::Policy policy;
  policy.max_norm = 2;
  policy.clip_value = 0.5;
  const optim::Decision decision = optim::decide(policy, scale_of(1024, 0), 8 * 1024, true);
  expect_equal(decision.norm, 8.0, "the norm");
  expect_equal(decision.shape.scale, 1.0 / 1024 * (2 / (8 + 1e-6)), "the factor");
  expect_equal(decision.shape.limit, 0.5, "the limit");
}

ddp_case(what_is_not_finite_is_kept_skipped_or_failed) {
  optim::Policy policy;
  expect(optim::decide(policy, optim::LossScale(), kNan, false).kind == Kind::kStep, "keep");
  policy.nonfinite = DDP_NONFINITE_SKIP;
  expect(optim::decide(policy, optim::LossScale(), kNan, false).kind == Kind::kSkip, "skip");
  expect(optim::decide(policy, optim::LossScale(), 1, true).kind == Kind::kStep, "nothing to skip");
  policy.nonfinite = DDP_NONFINITE_FAIL;
  expect(optim::decide(policy, optim::LossScale(), kNan, false).kind == Kind::kFail, "fail");
  policy.nonfinite = DDP_NONFINITE_KEEP;
  expect(optim::decide(policy, scale_of(2, 3), kNan, false).kind == Kind::kSkip, "a dynamic scale skips");
  expect(optim::decide(policy, scale_of(2, 0), kNan, false).kind == Kind::kStep, "a fixed one does not");
}

ddp_case(the_scale_grows_after_good_steps_and_shrinks_after_bad_ones) {
  ddp_loss_scale_options options = optim::default_loss_scale_options();
  options.initial = 8;
  options.interval = 3;
  options.minimum = 2;
  options.maximum = 16;
  optim::LossScale scale(options);
  const auto expect_after = [&](bool good, double wanted) {
    scale.count(good);
    expect_equal(scale.scale(), wanted, "the scale");
  };
  expect_after(true, 8);
  expect_after(true, 8);
  expect_after(true, 16);
  for (int i = 0; i < 3; ++i) expect_after(true, 16);
  expect_after(true, 16);
  expect_after(false, 8);
  expect_after(true, 8);
  expect_after(true, 8);
  expect_after(false, 4);
  expect_after(false, 2);
  expect_after(false, 2);
  for (int i = 0; i < 2; ++i) expect_after(true, 2);
  optim::Fields fields;
  scale.add_fields(fields);
  optim::LossScale loaded = optim::LossScale::from_fields(fields);
  loaded.count(true);
  expect_equal(loaded.scale(), 4.0, "the third good step after a load");
}

ddp_case(options_out_of_range_are_refused_by_name) {
  const auto refused = [](auto change, const char* name) {
    ddp_loss_scale_options options = optim::default_loss_scale_options();
    change(options);
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { optim::check_loss_scale_options(options, "here"); }, {name});
  };
  refused([](auto& o) { o.initial = 0; }, "initial");
  refused([](auto& o) { o.initial = kNan; }, "initial");
  refused([](auto& o) { o.growth = 0.5; }, "growth");
  refused([](auto& o) { o.backoff = 1.5; }, "backoff");
  refused([](auto& o) { o.minimum = 1e9; }, "minimum");
  refused([](auto& o) { o.maximum = 1; }, "maximum");
  refused([](auto& o) { o.interval = -1; }, "interval");
  optim::Policy policy;
  policy.max_norm = -1;
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { optim::check_policy(policy, "here"); }, {"max_norm"});
}
