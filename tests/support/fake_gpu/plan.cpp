// SPDX-License-Identifier: Apache-2.0
// A step that the device decides and counts, with the host's own policy, loss scale and rules.
#include <cmath>
#include <cstddef>

#include "core/exact_sum.hpp"
#include "optim/policy.hpp"
#include "optim/rules.hpp"
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/launch.hpp"

namespace ddp::test::fake_gpu::entry {
namespace {

optim::LossScale loss_scale_of(const ddp_gpu_progress& progress) {
  const ddp_loss_scale_options options{sizeof options,   progress.loss_scale, progress.growth,  progress.backoff,
                                       progress.minimum, progress.maximum,    progress.interval};
  optim::LossScale scale(options);
  scale.resume(progress.loss_scale, progress.good_steps);
  return scale;
}

/// True: the step is made.
bool decide_step(ddp_gpu_progress& progress, const ddp_gpu_step& step, const int64_t* words, ddp_gpu_gate& gate) {
  optim::LossScale scale = loss_scale_of(progress);
  optim::Policy policy;
  policy.max_norm = step.max_norm;
  policy.nonfinite = step.skip_nonfinite != 0 ? DDP_NONFINITE_SKIP : DDP_NONFINITE_KEEP;
  if (words == nullptr) {
    gate = {optim::plain_shape(policy, scale).scale, 0, 0, 0};
    ++progress.steps;
    return true;
  }
  ExactSum sum;
  std::copy_n(words, ExactSum::kWords, sum.words().begin());
  const optim::Decision decision = optim::decide(policy, scale, std::sqrt(sum.value()), sum.all_finite());
  const bool made = decision.kind == optim::Decision::Kind::kStep;
  scale.count(made);
  progress.loss_scale = scale.scale();
  progress.good_steps = scale.good_steps();
  progress.norm = decision.norm;
  ++(made ? progress.steps : progress.skipped);
  gate = {decision.shape.scale, decision.norm, made ? 0U : 1U, 0};
  return made;
}

ddp_gpu_planned_rule plan_rule(const ddp_gpu_rule_options& options, double rate, ddp_gpu_parameter& parameter) {
  ddp_gpu_planned_rule rule{};
  rule.active = 1;
  rate *= parameter.rate_scale;
  if (options.is_adam != 0) {
    ddp_adam_options adam = optim::default_adam_options();
    adam.beta1 = options.beta1;
    adam.beta2 = options.beta2;
    adam.epsilon = options.epsilon;
    adam.decoupled = options.decoupled;
    rule.adam = optim::rule_of(optim::adam_step(adam, rate, parameter.weight_decay, parameter.steps++));
  } else {
    ddp_sgd_options sgd = optim::default_sgd_options();
    sgd.momentum = options.momentum;
    sgd.dampening = options.dampening;
    sgd.nesterov = options.nesterov;
    rule.sgd = optim::rule_of(optim::sgd_step(sgd, rate, parameter.weight_decay, parameter.steps++));
  }
  return rule;
}

}  // namespace

int32_t plan_step(const ddp_gpu_step* step, ddp_gpu_stop stop, void* stream) {
  return launch("plan_step", stream, [&](Touches& touches) -> Work {
    if (step == nullptr || step->count < 0 || (step->count > 0 && step->used == nullptr)) return nullptr;
    ddp_gpu_step real = *step;
    real.progress = touches.change(step->progress, sizeof *step->progress);
    real.gate = touches.write(step->gate, sizeof *step->gate);
    if (step->count > 0) {
      real.parameters = touches.change(step->parameters, step->count * static_cast<int64_t>(sizeof *step->parameters));
      real.rules = touches.write(step->rules, step->count * static_cast<int64_t>(sizeof *step->rules));
    }
    if (step->words != nullptr)
      real.words = touches.read(step->words, static_cast<int64_t>(ExactSum::kWords * sizeof(int64_t)));
    std::vector<uint64_t> used(step->used, step->used + (step->count + 63) / 64);
    return [real, used = std::move(used), word = touches.stop_word(stop)] {
      bool made = false;
      if (is_stopped(word))
        *real.gate = {1, 0, 1, 0};
      else
        made = decide_step(*real.progress, real, real.words, *real.gate);
      const double rate = real.has_rate != 0 ? real.rate : real.progress->rate;
      for (int64_t k = 0; k < real.count; ++k) {
        const bool takes_part = (used[static_cast<size_t>(k / 64)] >> (k % 64) & 1) != 0;
        const bool active = made && takes_part && real.parameters[k].rate_scale != 0;
        real.rules[k] = active ? plan_rule(real.rule, rate, real.parameters[k]) : ddp_gpu_planned_rule{};
      }
    };
  });
}

}  // namespace ddp::test::fake_gpu::entry
