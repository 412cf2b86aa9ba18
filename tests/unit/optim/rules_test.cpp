// SPDX-License-Identifier: Apache-2.0
// The scalars of a step, and which options are refused.
#include "optim/rules.hpp"

#include "support/check.hpp"

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void expect_close(double got, double wanted, const char* what) {
  expect(std::abs(got - wanted) <= 1e-12 * std::abs(wanted), std::string(what) + ": " + std::to_string(got));
}

ddp_case(defaults_are_the_documented_ones) {
  const ddp_sgd_options sgd = optim::default_sgd_options();
  expect_equal(sgd.rate, 0.01, "rate");
  expect(sgd.momentum == 0 && sgd.dampening == 0 && sgd.weight_decay == 0 && sgd.nesterov == 0, "the rest is 0");
  const ddp_adam_options adam = optim::default_adam_options();
  expect(adam.rate == 0.001 && adam.beta1 == 0.9 && adam.beta2 == 0.999, "rate and betas");
  expect(adam.epsilon == 1e-8 && adam.weight_decay == 0.01 && adam.decoupled == 1, "epsilon, decay, decoupled");
}

ddp_case(powers_are_those_of_libm_but_for_rounding) {
  for (const double base : {0.0, 0.5, 0.9, 0.999, 0.99999})
    for (const int64_t exponent : {0, 1, 2, 3, 10, 1000, 100000}) {
      // A squaring doubles the relative error and adds a rounding, so the rounding errors count as often as the factors.
      const double wanted = std::pow(base, static_cast<double>(exponent));
      expect(std::abs(optim::power(base, exponent) - wanted) <= static_cast<double>(exponent) * 0x1p-53 * wanted,
             "a power of " + std::to_string(base));
    }
  expect_equal(optim::power(0.5, 60), 0x1p-60, "a power of two is exact");
  expect_equal(optim::power(0.999, INT64_MAX), 0.0, "the largest step count");
}

ddp_case(adam_corrects_the_bias_of_its_step) {
  const ddp_adam_options options = optim::default_adam_options();
  const cpu::AdamStep first = optim::adam_step(options, 0.1, 0.01, 0);
  expect_close(first.size, 1.0, "0.1 / (1 - 0.9)");
  expect_close(first.root_scale, std::sqrt(1000.0), "1 / sqrt(1 - 0.999)");
  expect_close(first.keep, 0.999, "1 - 0.1 * 0.01");
  expect_equal(first.weight_decay, 0.0, "AdamW adds nothing to the gradient");
  const cpu::AdamStep late = optim::adam_step(options, 0.1, 0.01, 1'000'000'000);
  expect_equal(late.size, 0.1, "no correction is left");
  expect_equal(late.root_scale, 1.0, "no correction is left");
}

ddp_case(plain_adam_adds_the_decay_to_the_gradient) {
  ddp_adam_options options = optim::default_adam_options();
  options.decoupled = 0;
  const cpu::AdamStep step = optim::adam_step(options, 0.1, 0.3, 4);
  expect_equal(step.keep, 1.0, "keep");
  expect_equal(step.weight_decay, 0.3, "weight decay");
}

ddp_case(the_first_momentum_step_is_told_from_the_others) {
  ddp_sgd_options options = optim::default_sgd_options();
  expect(optim::sgd_step(options, 1, 0, 0).mode == cpu::Momentum::kNone, "no momentum");
  options.momentum = 0.9;
  options.dampening = 0.25;
  expect(optim::sgd_step(options, 1, 0, 0).mode == cpu::Momentum::kFirst, "first step");
  expect(optim::sgd_step(options, 1, 0, 1).mode == cpu::Momentum::kRunning, "second step");
  expect_equal(optim::sgd_step(options, 1, 0, 1).gradient_share, 0.75, "1 - dampening");
}

ddp_case(wrong_sgd_options_are_named) {
  const auto refused = [](auto change, const char* part) {
    ddp_sgd_options options = optim::default_sgd_options();
    change(options);
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { optim::check_sgd_options(options, "f"); }, {part});
  };
  refused([](auto& o) { o.rate = -1; }, "f: rate is -1");
  refused([](auto& o) { o.rate = kNan; }, "rate is");
  refused([](auto& o) { o.rate = kInfinity; }, "rate is inf");
  refused([](auto& o) { o.momentum = -0.1; }, "momentum is -0.1");
  refused([](auto& o) { o.weight_decay = -0.1; }, "weight_decay is -0.1");
  refused([](auto& o) { o.dampening = kNan; }, "dampening is");
  refused([](auto& o) { o.nesterov = 2; }, "nesterov is 2");
  refused([](auto& o) { o.nesterov = 1; }, "nesterov needs momentum");
  refused(
      [](auto& o) {
        o.nesterov = 1;
        o.momentum = 0.9;
        o.dampening = 0.1;
      },
      "dampening 0.1");
  optim::check_sgd_options(optim::default_sgd_options(), "f");
}

ddp_case(wrong_adam_options_are_named) {
  const auto refused = [](auto change, const char* part) {
    ddp_adam_options options = optim::default_adam_options();
    change(options);
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { optim::check_adam_options(options, "f"); }, {part});
  };
  refused([](auto& o) { o.rate = -1; }, "rate is -1");
  refused([](auto& o) { o.beta1 = 1; }, "beta1 is 1");
  refused([](auto& o) { o.beta1 = -0.5; }, "beta1 is -0.5");
  refused([](auto& o) { o.beta2 = kNan; }, "beta2 is");
  refused([](auto& o) { o.beta2 = 1.5; }, "beta2 is 1.5");
  refused([](auto& o) { o.epsilon = -1e-8; }, "epsilon is -1e-08");
  refused([](auto& o) { o.epsilon = 0; }, "epsilon is 0");
  refused([](auto& o) { o.epsilon = 1e-60; }, "epsilon is 1e-60");
  refused([](auto& o) { o.weight_decay = kInfinity; }, "weight_decay is inf");
  refused([](auto& o) { o.decoupled = -1; }, "decoupled is -1");
  optim::check_adam_options(optim::default_adam_options(), "f");
}
