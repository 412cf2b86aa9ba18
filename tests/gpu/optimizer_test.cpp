// SPDX-License-Identifier: Apache-2.0
// Optimizers and averages over CUDA tensors on one rank: the same model on the CPU, with the same gradients, holds the same
// bits after every step.

#include "gpu/support/trainer.hpp"

using namespace ddp::test::card;

namespace {

enum class Rule { kSgd, kMomentum, kNesterov, kAdam, kAdamW };
constexpr Rule kRules[] = {Rule::kSgd, Rule::kMomentum, Rule::kNesterov, Rule::kAdam, Rule::kAdamW};

struct OptimizerWays {
  Rule rule = Rule::kAdamW;
  ddp_dtype dtype = DDP_F32;
  bool own_gradients = false;
  bool in_backward = false;
  bool master_weights = false;
  double max_norm = 0;
  double clip_value = 0;
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  std::optional<int64_t> loss_scale_interval;  // a loss scale of 1024; 0: fixed
};

template <class Options>
void fill(Options& options) {
  options.rate = 0.05;
  options.weight_decay = 0.01;
}

ddp_optimizer_options shared_options(const OptimizerWays& ways) {
  auto options = defaults<ddp_optimizer_options>();
  options.in_backward = ways.in_backward;
  options.master_weights = ways.master_weights;
  options.max_norm = ways.max_norm;
  options.clip_value = ways.clip_value;
  options.nonfinite = ways.nonfinite;
  return options;
}

OptimizerHandle make_optimizer(ddp_model* model, const OptimizerWays& ways) {
  ddp_optimizer* made = nullptr;
  const ddp_optimizer_options shared = shared_options(ways);
  if (ways.rule == Rule::kAdam || ways.rule == Rule::kAdamW) {
    auto options = defaults<ddp_adam_options>();
    fill(options);
    options.decoupled = ways.rule == Rule::kAdamW;
    OK(ddp_optimizer_create_adam(model, &options, &shared, &made));
  } else {
    auto options = defaults<ddp_sgd_options>();
    fill(options);
    options.momentum = ways.rule == Rule::kSgd ? 0 : 0.9;
    options.nesterov = ways.rule == Rule::kNesterov;
    OK(ddp_optimizer_create_sgd(model, &options, &shared, &made));
  }
  OptimizerHandle optimizer(made);
  OK(ddp_optimizer_set_parameter_options(made, 1, 0.0, 0.5));
  if (ways.loss_scale_interval) {
    auto options = defaults<ddp_loss_scale_options>();
    options.initial = 1024;
    options.interval = *ways.loss_scale_interval;
    OK(ddp_optimizer_set_loss_scale(made, &options));
  }
  return optimizer;
}

struct Steps {
  int count = 4;
  int broken = -1;  // its gradients are infinite
};

/// The results of a run: values after every step, gradients after the last, and the numbers of the optimizer.
std::string run(ddp_group* group, Place place, const OptimizerWays& ways, const Steps& steps) {
  Plan plan;
  plan.place = place;
  plan.dtype = ways.dtype;
  plan.own_gradients = ways.own_gradients;
  Trainer trainer(group, plan);
  const OptimizerHandle optimizer = make_optimizer(trainer.model.get(), ways);
  std::string all;
  for (int step = 0; step < steps.count; ++step) {
    double numbers[3] = {};
    int64_t skipped = 0;
    OK(ddp_optimizer_get_loss_scale(optimizer.get(), &numbers[0]));
    trainer.scale = step == steps.broken ? INFINITY : numbers[0];
    trainer.pass(step);
    OK(ddp_optimizer_step(optimizer.get(), trainer.stream.get()));
    OK(ddp_optimizer_get_grad_norm(optimizer.get(), &numbers[1]));
    OK(ddp_optimizer_get_skipped_count(optimizer.get(), &skipped));
    numbers[2] = static_cast<double>(skipped);
    all += trainer.value_bytes() + std::string(reinterpret_cast<const char*>(numbers), sizeof numbers);
  }
  return all + trainer.grad_bytes();
}

std::string describe(const OptimizerWays& ways) {
  std::string text = "rule " + std::to_string(static_cast<int>(ways.rule)) + ", " + dtype_name(ways.dtype);
  if (ways.own_gradients) text += ", own gradients";
  if (ways.in_backward) text += ", in backward";
  if (ways.master_weights) text += ", master weights";
  if (ways.max_norm > 0) text += ", clipped by norm";
  if (ways.clip_value > 0) text += ", clipped by value";
  if (ways.loss_scale_interval) text += ", loss scale";
  return text;
}

void expect_same_run(const OptimizerWays& ways, const Steps& steps = {}) {
  const GroupHandle group = alone();
  expect_same_bytes(run(group.get(), kGpu, ways, steps), run(group.get(), kCpu, ways, steps), describe(ways));
}

ddp_case(every_rule_in_every_dtype_gives_the_bits_of_the_cpu) {
  for (const Rule rule : kRules)
    for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_C64})
      for (const bool own : {false, true}) {
        OptimizerWays ways;
        ways.rule = rule;
        ways.dtype = dtype;
        ways.own_gradients = own;
        expect_same_run(ways);
      }
}

ddp_case(master_weights_give_the_bits_of_the_cpu) {
  for (const Rule rule : {Rule::kMomentum, Rule::kAdamW})
    for (const ddp_dtype dtype : {DDP_F16, DDP_BF16})
      for (const bool in_backward : {false, true}) {
        OptimizerWays ways;
        ways.rule = rule;
        ways.dtype = dtype;
        ways.in_backward = in_backward;
        ways.master_weights = true;
        expect_same_run(ways);
      }
}

ddp_case(updates_within_the_pass_give_the_bits_of_those_after_it) {
  const GroupHandle group = alone();
  for (const Rule rule : kRules) {
    OptimizerWays ways;
    ways.rule = rule;
    const std::string after = run(group.get(), kGpu, ways, {});
    ways.in_backward = true;
    expect_same_bytes(run(group.get(), kGpu, ways, {}), after, describe(ways));
  }
}

ddp_case(clipping_gives_the_bits_of_the_cpu) {
  for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
    OptimizerWays ways;
    ways.dtype = dtype;
    ways.max_norm = 2.5;
    expect_same_run(ways);
    ways.clip_value = 0.01;
    expect_same_run(ways);
    ways.max_norm = 0;
    expect_same_run(ways);
  }
}

ddp_case(a_fixed_loss_scale_gives_the_bits_of_the_cpu) {
  for (const bool in_backward : {false, true}) {
    OptimizerWays ways;
    ways.dtype = DDP_F16;
    ways.in_backward = in_backward;
    ways.loss_scale_interval = 0;
    expect_same_run(ways);
  }
}

ddp_case(a_dynamic_loss_scale_skips_and_recovers_as_on_the_cpu) {
  OptimizerWays ways;
  ways.loss_scale_interval = 2;
  expect_same_run(ways, {7, 3});
}

ddp_case(steps_with_infinite_gradients_are_skipped_as_on_the_cpu) {
  for (const double max_norm : {0.0, 2.5}) {
    OptimizerWays ways;
    ways.nonfinite = DDP_NONFINITE_SKIP;
    ways.max_norm = max_norm;
    expect_same_run(ways, {5, 2});
  }
}

ddp_case(infinite_gradients_can_fail_the_step_and_change_nothing) {
  const GroupHandle group = alone();
  Trainer trainer(group.get(), Plan{});
  OptimizerWays ways;
  ways.nonfinite = DDP_NONFINITE_FAIL;
  const OptimizerHandle optimizer = make_optimizer(trainer.model.get(), ways);
  trainer.pass(0);
  OK(ddp_optimizer_step(optimizer.get(), trainer.stream.get()));
  const std::string before = trainer.value_bytes();
  trainer.scale = INFINITY;
  trainer.pass(1);
  FAILS(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer.get(), trainer.stream.get()), "p");
  expect_same_bytes(trainer.value_bytes(), before, "values after a step that failed");
}

ddp_case(averages_are_those_of_the_cpu) {
  const GroupHandle group = alone();
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16}) {
    const auto averaged = [&](Place place) {
      Plan plan;
      plan.place = place;
      plan.dtype = dtype;
      Trainer t(group.get(), plan);
      const OptimizerHandle optimizer = make_optimizer(t.model.get(), OptimizerWays{});
      const double decays[] = {0.9, 0.5};
      ddp_ema* made = nullptr;
      OK(ddp_ema_create(t.model.get(), decays, 2, &made));
      const EmaHandle ema(made);
      for (int step = 0; step < 3; ++step) {
        t.pass(step);
        OK(ddp_optimizer_step(optimizer.get(), t.stream.get()));
        OK(ddp_ema_update(made, t.stream.get()));
      }
      std::string all = t.value_bytes();
      for (const int32_t which : {0, 1}) {
        OK(ddp_ema_swap(made, which, t.stream.get()));
        all += t.value_bytes();
        OK(ddp_ema_swap(made, which, t.stream.get()));
      }
      return all + t.value_bytes();
    };
    expect_same_bytes(averaged(kGpu), averaged(kCpu), std::string("averages, ") + dtype_name(dtype));
  }
}

int32_t copy_gradient(void*, const ddp_update_slice* slice) {
  if (slice->device != DDP_CUDA || slice->dtype != DDP_F32) return 1;
  return table().copy(slice->value, slice->grad, slice->count * 4, slice->stream) == 0 ? 0 : 2;
}

ddp_case(an_update_of_the_program_gets_its_tensors_and_the_stream) {
  const GroupHandle group = alone();
  Trainer t(group.get(), Plan{});
  ddp_optimizer* made = nullptr;
  OK(ddp_optimizer_create_custom(t.model.get(), nullptr, nullptr, nullptr, copy_gradient, nullptr, nullptr, &made));
  const OptimizerHandle optimizer(made);
  t.pass(0);
  OK(ddp_optimizer_step(made, t.stream.get()));
  expect_same_bytes(t.value_bytes(), t.grad_bytes(), "values that became gradients");
}

gpu_cases(need_devices(1));

}  // namespace
