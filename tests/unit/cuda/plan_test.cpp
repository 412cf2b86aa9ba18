// SPDX-License-Identifier: Apache-2.0
// A step that the device decides and counts, by the kernel on the host, compared with the optimizer's own policy, loss scale
// and rules: the same bits.
#include "modules/cuda/kernels/plan.hpp"

#include "core/exact_sum.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "optim/policy.hpp"
#include "optim/rules.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

bool same(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

/// The inputs of the decision about a step and its results, with the memory of both.
struct Planned {
  ddp_gpu_progress progress{0.01, 8, 2, 0.5, 1, 64, 3, 0, 0, 0, -1};
  std::vector<ddp_gpu_parameter> parameters;
  std::vector<uint64_t> used;
  std::vector<ddp_gpu_planned_rule> rules;
  ddp_gpu_gate gate{};
  ddp_gpu_step step{};

  explicit Planned(int64_t count)
      : parameters(static_cast<size_t>(count), ddp_gpu_parameter{0.1, 1, 0}),
        used(static_cast<size_t>(count + 63) / 64, ~uint64_t{0}),
        rules(static_cast<size_t>(count)) {
    step.count = count;
    step.rule = {1, 1, 0, 0, 0.9, 0.999, 1e-8, 0, 0};
  }
  void make(const uint32_t* stop = nullptr) {
    step.progress = &progress;
    step.parameters = parameters.data();
    step.used = used.data();
    step.gate = &gate;
    step.rules = rules.data();
    expect_equal(cuda::plan_step(&step, stop, nullptr), 0, "code");
  }
};

ExactSum sum_of(std::initializer_list<double> terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum;
}

void expect_rule(const ddp_gpu_adam_rule& got, const device::AdamRule& wanted, const std::string& what) {
  expect(std::memcmp(&got, &wanted, sizeof got) == 0, what);
}

ddp_case(adams_scalars_have_the_hosts_bits) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> share(0.5, 0.9999);
  ddp_adam_options options = optim::default_adam_options();
  for (int round = 0; round < 40; ++round) {
    Planned planned(3);
    options.decoupled = round % 2;
    options.beta1 = round == 0 ? 0 : share(random);
    options.beta2 = share(random);
    options.epsilon = share(random);
    planned.step.rule = {1, options.decoupled, 0, 0, options.beta1, options.beta2, options.epsilon, 0, 0};
    for (const int64_t steps : {0LL, 1LL, 2LL, 77LL, 1000LL, 123'456LL, 9'000'000'000LL}) {
      planned.parameters = {{0.01, 1, steps}, {0, share(random), steps + 1}, {share(random), 0.25, steps}};
      const std::vector<ddp_gpu_parameter> before = planned.parameters;
      planned.progress.rate = share(random);
      planned.make();
      for (size_t k = 0; k < 3; ++k) {
        const double rate = planned.progress.rate * before[k].rate_scale;
        expect_rule(planned.rules[k].adam,
                    optim::rule_of(optim::adam_step(options, rate, before[k].weight_decay, before[k].steps)),
                    "parameter " + std::to_string(k) + " after " + std::to_string(steps) + " steps");
        expect_equal(planned.parameters[k].steps, before[k].steps + 1, "steps");
      }
    }
  }
}

ddp_case(sgds_scalars_have_the_hosts_bits) {
  ddp_sgd_options options = optim::default_sgd_options();
  for (const double momentum : {0.0, 0.9})
    for (const int32_t nesterov : {0, 1})
      for (const double dampening : {0.0, 0.3})
        for (const int64_t steps : {0, 1, 5}) {
          options.momentum = momentum;
          options.nesterov = nesterov;
          options.dampening = dampening;
          Planned planned(1);
          planned.step.rule = {0, 0, nesterov, 0, 0, 0, 0, momentum, dampening};
          planned.parameters = {{0.02, 3, steps}};
          planned.make();
          const device::SgdRule wanted = optim::rule_of(optim::sgd_step(options, 0.01 * 3, 0.02, steps));
          expect(std::memcmp(&planned.rules[0].sgd, &wanted, sizeof wanted) == 0, "the scalars");
        }
}

/// Random gradients, some of them not finite, for a hundred steps.
ddp_case(decisions_and_counts_are_the_hosts) {
  std::mt19937_64 random(7);
  for (const double max_norm : {0.0, 3.0})
    for (const ddp_nonfinite nonfinite : {DDP_NONFINITE_KEEP, DDP_NONFINITE_SKIP})
      for (const int64_t interval : {0, 1, 3}) {
        Planned planned(2);
        planned.parameters[1].rate_scale = 0;
        planned.progress.interval = interval;
        planned.step.max_norm = max_norm;
        planned.step.skip_nonfinite = nonfinite == DDP_NONFINITE_SKIP ? 1 : 0;
        ddp_loss_scale_options options{sizeof options, 8, 2, 0.5, 1, 64, interval};
        optim::LossScale scale(options);
        optim::Policy policy;
        policy.max_norm = max_norm;
        policy.nonfinite = nonfinite;
        int64_t steps = 0, skipped = 0;
        for (int round = 0; round < 100; ++round) {
          ExactSum sum = sum_of({std::ldexp(static_cast<double>(random() % 1000), static_cast<int>(random() % 20))});
          if (random() % 3 == 0) sum.add(random() % 2 == 0 ? kInfinity : std::numeric_limits<double>::quiet_NaN());
          planned.step.words = sum.words().data();
          planned.make();
          const optim::Decision wanted = optim::decide(policy, scale, std::sqrt(sum.value()), sum.all_finite());
          const bool made = wanted.kind == optim::Decision::Kind::kStep;
          scale.count(made);
          ++(made ? steps : skipped);
          expect(same(planned.gate.scale, wanted.shape.scale) && same(planned.gate.norm, wanted.norm), "the gate");
          expect_equal(planned.gate.skip, made ? 0U : 1U, "left out");
          expect_equal(planned.progress.loss_scale, scale.scale(), "loss scale");
          expect_equal(planned.progress.good_steps, scale.good_steps(), "good steps");
          expect(same(planned.progress.norm, wanted.norm), "norm");
          expect_equal(planned.progress.steps, steps, "steps");
          expect_equal(planned.progress.skipped, skipped, "skipped");
          expect_equal(planned.rules[0].active, made ? 1 : 0, "the parameter takes part");
          expect_equal(planned.parameters[0].steps, steps, "its steps");
          expect_equal(planned.rules[1].active, 0, "the frozen one does not");
          expect_equal(planned.parameters[1].steps, int64_t{0}, "nor does it count");
        }
      }
}

ddp_case(a_step_that_does_not_look_keeps_norm_and_loss_scale) {
  Planned planned(1);
  planned.progress.norm = 5;
  planned.step.has_rate = 1;
  planned.step.rate = 0.5;
  planned.make();
  expect_equal(planned.gate.scale, 1.0 / 8, "the factor");
  expect_equal(planned.progress.norm, 5.0, "norm");
  expect_equal(planned.progress.good_steps, int64_t{0}, "good steps");
  expect_equal(planned.progress.steps, int64_t{1}, "steps");
  expect_rule(planned.rules[0].adam, optim::rule_of(optim::adam_step(optim::default_adam_options(), 0.5, 0.1, 0)),
              "by the rate of the call");
}

ddp_case(a_step_that_is_stopped_counts_nothing) {
  Planned planned(1);
  const ExactSum bad = sum_of({kInfinity});
  ExactSum words = bad;
  planned.step.words = words.words().data();
  const uint32_t stop = 1;
  planned.make(&stop);
  expect_equal(planned.gate.skip, 1U, "left out");
  expect_equal(planned.progress.steps + planned.progress.skipped, int64_t{0}, "counts");
  expect_equal(planned.progress.loss_scale, 8.0, "loss scale");
  expect_equal(planned.rules[0].active + planned.parameters[0].steps, int64_t{0}, "the parameter");
}

/// More parameters than one launch has bits for; every third takes part.
ddp_case(any_number_of_parameters_is_counted) {
  for (const int64_t count : {0, 1, 64, 65, 40'000, 300'000}) {
    Planned planned(count);
    for (size_t k = 0; k < planned.parameters.size(); ++k) {
      planned.parameters[k].steps = static_cast<int64_t>(k % 5);
      if (k % 3 != 0) planned.used[k / 64] &= ~(uint64_t{1} << (k % 64));
    }
    planned.make();
    expect_equal(planned.progress.steps, int64_t{1}, "steps");
    for (size_t k = 0; k < planned.parameters.size(); ++k) {
      const int64_t part = k % 3 == 0 ? 1 : 0;
      if (planned.rules[k].active != part || planned.parameters[k].steps != static_cast<int64_t>(k % 5) + part)
        expect(false, "parameter " + std::to_string(k) + " of " + std::to_string(count));
    }
  }
}
