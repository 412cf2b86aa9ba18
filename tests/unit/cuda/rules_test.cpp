// SPDX-License-Identifier: Apache-2.0
// The update rules, by the kernels on the host, compared with the CPU's loops, bit for bit.
#include "modules/cuda/kernels/rules.hpp"

#include "device/cpu/arrays.hpp"
#include "device/cpu/update_kernels.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

/// The arrays of one parameter; a 16-bit one may have a master.
struct Parameter {
  WildArray value, grad, first, second, master;
  bool has_master;
  int64_t rule;

  Parameter(ddp_dtype dtype, int64_t count, int64_t offset, bool with_master, int64_t rule_)
      : value(dtype, count, offset),
        grad(dtype, count, offset),
        first(cpu::moment_dtype(dtype), count, offset),
        second(cpu::moment_dtype(dtype), count, offset),
        master(DDP_F32, count, offset),
        has_master(with_master),
        rule(rule_) {
    const auto seed = static_cast<uint64_t>(count * 8 + offset);
    value.fill(seed + 1);
    grad.fill(seed + 2);
    first.fill(seed + 3);
    second.fill(seed + 4).make_positive();
    // Most masters belong to their parameter; some parameters were changed by their owner.
    if (!has_master) return;
    master.fill(seed + 5);
    for (int64_t i = 0; i < count; ++i)
      if (i % 5 != 0) cpu::convert(DDP_F32, master.as<float>() + i, dtype, value.as<uint16_t>() + i, 1);
  }
  ddp_gpu_update update(bool with_first = true) {
    return {value.data(),
            grad.data(),
            {with_first ? first.data() : nullptr, second.data()},
            has_master ? master.data() : nullptr,
            value.count(),
            rule};
  }
  void expect_same(const Parameter& wanted, const std::string& what) const {
    value.expect_same(wanted.value, what + ", value");
    first.expect_same(wanted.first, what + ", first");
    second.expect_same(wanted.second, what + ", second");
    if (has_master) master.expect_same(wanted.master, what + ", master");
  }

  /// apply(dtype, value, grad) on the numbers that the rule changes: the parameter, or its master begun anew where the owner
  /// has changed the parameter.
  template <class Rule>
  void by_cpu(Rule apply) {
    if (!has_master) return apply(value.dtype(), value.data(), grad.data());
    const int64_t count = value.count();
    WildArray wide(DDP_F32, count), rounded(value.dtype(), count);
    cpu::convert(DDP_F32, master.data(), value.dtype(), rounded.data(), count);
    for (int64_t i = 0; i < count; ++i)
      if (rounded.as<uint16_t>()[i] != value.as<uint16_t>()[i])
        cpu::convert(value.dtype(), value.as<uint16_t>() + i, DDP_F32, master.as<float>() + i, 1);
    cpu::convert(grad.dtype(), grad.data(), DDP_F32, wide.data(), count);
    apply(DDP_F32, master.data(), wide.data());
    cpu::convert(DDP_F32, master.data(), value.dtype(), value.data(), count);
  }
};

std::vector<Parameter> some_parameters(ddp_dtype dtype, bool masters, int64_t rules) {
  std::vector<Parameter> parameters;
  for (const int64_t offset : {0, 1})
    for (const int64_t count : odd_lengths())
      parameters.emplace_back(dtype, count, offset, masters && count % 3 != 0,
                              static_cast<int64_t>(parameters.size()) % rules);
  return parameters;
}

bool is_small(ddp_dtype dtype) { return dtype == DDP_F16 || dtype == DDP_BF16; }

const cpu::AdamStep kAdams[] = {{1, 0.01, 0.9, 1 - 0.9, 0.999, 1 - 0.999, 0.02, 1.7, 1e-8, {}},
                                {0.999, 0, 0.8, 1 - 0.8, 0.99, 1 - 0.99, 0.5, 1.1, 1e-6, {}}};

ddp_gpu_adam_rule rule_of(const cpu::AdamStep& s) {
  return {s.keep, s.weight_decay, s.beta1, s.share1, s.beta2, s.share2, s.size, s.root_scale, s.epsilon};
}

ddp_case(adam_has_the_cpus_bits) {
  const ddp_gpu_adam_rule rules[] = {rule_of(kAdams[0]), rule_of(kAdams[1])};
  for (const ddp_dtype dtype : kFloats)
    for (const bool masters : {false, true})
      for (const cpu::GradShape& shape : {cpu::GradShape{}, cpu::GradShape{1.0 / 3, 0.75}}) {
        if (masters && !is_small(dtype)) continue;
        auto got = some_parameters(dtype, masters, 2), wanted = got;
        std::vector<ddp_gpu_update> updates;
        for (Parameter& p : got) updates.push_back(p.update());
        const ddp_gpu_shape how{shape.scale, shape.limit, nullptr, 0};
        expect_equal(
            cuda::adam_step(updates.data(), static_cast<int64_t>(updates.size()), rules, 2, dtype, &how, nullptr, nullptr),
            0, "code");
        for (size_t k = 0; k < got.size(); ++k) {
          Parameter& p = wanted[k];
          cpu::AdamStep step = kAdams[p.rule];
          step.shape = shape;
          p.by_cpu([&](ddp_dtype type, void* value, const void* grad) {
            cpu::adam_update(step, type, value, grad, p.first.data(), p.second.data(), p.value.count());
          });
          got[k].expect_same(p, "Adam");
        }
      }
}

/// Sums become means as they are read, in memory too: as a division before the update, whatever else is done to them.
ddp_case(sums_are_divided_as_they_are_read) {
  const ddp_gpu_adam_rule rules[] = {rule_of(kAdams[0]), rule_of(kAdams[1])};
  for (const ddp_dtype dtype : kFloats)
    for (const bool masters : {false, true})
      for (const double divisor : {2.0, 3.0}) {
        if (masters && !is_small(dtype)) continue;
        auto got = some_parameters(dtype, masters, 2), wanted = got;
        std::vector<ddp_gpu_update> updates, after;
        for (Parameter& p : got) updates.push_back(p.update());
        for (Parameter& p : wanted) after.push_back(p.update());
        const auto count = static_cast<int64_t>(updates.size());
        const ddp_gpu_shape at_once{0.25, 0.75, nullptr, divisor}, behind{0.25, 0.75, nullptr, 0};
        expect_equal(cuda::adam_step(updates.data(), count, rules, 2, dtype, &at_once, nullptr, nullptr), 0, "code");
        for (const ddp_gpu_update& each : after) {
          void* const grad = const_cast<void*>(each.grad);
          const ddp_gpu_span span{grad, grad, each.count};
          expect_equal(cuda::move_quotient(&span, 1, dtype, dtype, 1, divisor, nullptr, nullptr), 0, "code");
        }
        expect_equal(cuda::adam_step(after.data(), count, rules, 2, dtype, &behind, nullptr, nullptr), 0, "code");
        for (size_t k = 0; k < got.size(); ++k) {
          got[k].expect_same(wanted[k], "Adam");
          expect(std::memcmp(got[k].grad.data(), wanted[k].grad.data(), static_cast<size_t>(got[k].grad.bytes())) == 0,
                 "the gradient is the mean");
        }
      }
}

std::vector<cpu::SgdStep> all_sgds() {
  std::vector<cpu::SgdStep> steps;
  for (const double decay : {0.0, 0.01})
    for (const bool nesterov : {false, true})
      for (const cpu::Momentum mode : {cpu::Momentum::kNone, cpu::Momentum::kFirst, cpu::Momentum::kRunning})
        steps.push_back({0.1, decay, 0.9, 0.7, mode, nesterov, {}});
  return steps;
}

ddp_case(sgd_has_the_cpus_bits) {
  const std::vector<cpu::SgdStep> steps = all_sgds();
  std::vector<ddp_gpu_sgd_rule> rules;
  for (const cpu::SgdStep& s : steps)
    rules.push_back({s.rate, s.weight_decay, s.momentum, s.gradient_share, static_cast<int32_t>(s.mode),
                     s.nesterov && s.mode != cpu::Momentum::kNone ? 1 : 0});
  for (const ddp_dtype dtype : kFloats)
    for (const bool masters : {false, true}) {
      if (masters && !is_small(dtype)) continue;
      auto got = some_parameters(dtype, masters, static_cast<int64_t>(rules.size())), wanted = got;
      std::vector<ddp_gpu_update> updates;
      for (Parameter& p : got) updates.push_back(p.update(steps[static_cast<size_t>(p.rule)].mode != cpu::Momentum::kNone));
      const ddp_gpu_shape how{0.5, 1.5, nullptr, 0};
      expect_equal(cuda::sgd_step(updates.data(), static_cast<int64_t>(updates.size()), rules.data(),
                                  static_cast<int64_t>(rules.size()), dtype, &how, nullptr, nullptr),
                   0, "code");
      for (size_t k = 0; k < got.size(); ++k) {
        Parameter& p = wanted[k];
        cpu::SgdStep step = steps[static_cast<size_t>(p.rule)];
        step.shape = {0.5, 1.5};
        p.by_cpu([&](ddp_dtype type, void* value, const void* grad) {
          cpu::sgd_update(step, type, value, grad, step.mode == cpu::Momentum::kNone ? nullptr : p.first.data(),
                          p.value.count());
        });
        got[k].expect_same(p, "SGD " + std::to_string(p.rule));
      }
    }
}

ddp_case(averages_have_the_cpus_bits) {
  for (const ddp_dtype dtype : kFloats) {
    auto got = some_parameters(dtype, false, 1), wanted = got;
    std::vector<ddp_gpu_span> spans;
    for (Parameter& p : got) spans.push_back({p.value.data(), p.first.data(), p.value.count()});
    expect_equal(cuda::ema(spans.data(), static_cast<int64_t>(spans.size()), dtype, 0.999, nullptr, nullptr), 0, "code");
    for (size_t k = 0; k < got.size(); ++k) {
      const double decay = 0.999;
      void* const average = wanted[k].first.data();
      cpu::ema_update(&decay, 1, dtype, wanted[k].value.data(), &average, wanted[k].value.count());
      got[k].expect_same(wanted[k], "average");
    }
  }
}

/// More parameters and rules than one launch holds.
ddp_case(any_number_of_parameters_and_rules_is_updated) {
  constexpr int64_t kCount = 1200;
  std::vector<ddp_gpu_adam_rule> rules;
  std::vector<cpu::AdamStep> steps;
  for (int64_t r = 0; r < 110; ++r) {
    steps.push_back(kAdams[r % 2]);
    steps.back().size = 0.001 * static_cast<double>(r + 1);
    rules.push_back(rule_of(steps.back()));
  }
  std::vector<Parameter> got;
  for (int64_t k = 0; k < kCount; ++k) got.emplace_back(DDP_F32, k % 7, 0, false, k < 600 ? k % 40 : k % 110);
  auto wanted = got;
  std::vector<ddp_gpu_update> updates;
  for (Parameter& p : got) updates.push_back(p.update());
  const ddp_gpu_shape how{1, kInfinity, nullptr, 0};
  expect_equal(cuda::adam_step(updates.data(), kCount, rules.data(), 110, DDP_F32, &how, nullptr, nullptr), 0, "code");
  for (size_t k = 0; k < got.size(); ++k) {
    Parameter& p = wanted[k];
    cpu::adam_update(steps[static_cast<size_t>(p.rule)], DDP_F32, p.value.data(), p.grad.data(), p.first.data(),
                     p.second.data(), p.value.count());
    got[k].expect_same(p, "parameter " + std::to_string(k));
  }
}

ddp_case(the_gate_gives_the_scale_and_may_skip) {
  const ddp_gpu_adam_rule rule = rule_of(kAdams[0]);
  for (const uint32_t skip : {0U, 1U})
    for (const uint32_t stop : {0U, 1U}) {
      Parameter got(DDP_F16, 5000, 1, true, 0), wanted = got;
      const ddp_gpu_gate gate{0.25, 3, skip, 0};
      const ddp_gpu_shape how{77, kInfinity, &gate, 0};
      const ddp_gpu_update update = got.update();
      expect_equal(cuda::adam_step(&update, 1, &rule, 1, DDP_F16, &how, &stop, nullptr), 0, "code");
      cpu::AdamStep step = kAdams[0];
      step.shape.scale = 0.25;
      if (skip == 0 && stop == 0)
        wanted.by_cpu([&](ddp_dtype type, void* value, const void* grad) {
          cpu::adam_update(step, type, value, grad, wanted.first.data(), wanted.second.data(), wanted.value.count());
        });
      got.expect_same(wanted, "skip " + std::to_string(skip) + ", stop " + std::to_string(stop));
    }
}

/// Rules in device memory, one for each parameter, some of which are not active; more parameters than one launch holds.
ddp_case(planned_rules_have_the_cpus_bits) {
  const std::vector<cpu::SgdStep> sgds = all_sgds();
  for (const bool is_adam : {true, false})
    for (const ddp_dtype dtype : kFloats)
      for (const int64_t count : {3, 700}) {
        std::vector<Parameter> got;
        for (int64_t k = 0; k < count; ++k) got.emplace_back(dtype, 1 + k % 40, k % 2, is_small(dtype) && k % 3 == 0, k);
        auto wanted = got;
        std::vector<ddp_gpu_update> updates;
        std::vector<ddp_gpu_planned_rule> rules(static_cast<size_t>(count));
        const auto sgd_of = [&](size_t k) {  // of a buffer that is there
          cpu::SgdStep step = sgds[k % sgds.size()];
          if (step.mode == cpu::Momentum::kNone) step.mode = cpu::Momentum::kRunning;
          return step;
        };
        for (size_t k = 0; k < got.size(); ++k) {
          updates.push_back(got[k].update());
          const cpu::SgdStep s = sgd_of(k);
          rules[k].adam = rule_of(kAdams[k % 2]);
          rules[k].sgd = {s.rate, s.weight_decay, s.momentum, s.gradient_share, static_cast<int32_t>(s.mode), s.nesterov};
          rules[k].active = k % 7 != 5 ? 1 : 0;
        }
        const ddp_gpu_gate gate{0.5, 3, 0, 0};
        const ddp_gpu_shape how{77, 1.5, &gate, 0};
        auto* const launch = is_adam ? cuda::planned_adam : cuda::planned_sgd;
        expect_equal(launch(updates.data(), count, rules.data(), count, dtype, &how, nullptr, nullptr), 0, "code");
        for (size_t k = 0; k < got.size(); ++k) {
          Parameter& p = wanted[k];
          if (rules[k].active != 0)
            p.by_cpu([&](ddp_dtype type, void* value, const void* grad) {
              cpu::AdamStep adam = kAdams[k % 2];
              cpu::SgdStep sgd = sgd_of(k);
              adam.shape = sgd.shape = {0.5, 1.5};
              if (is_adam)
                cpu::adam_update(adam, type, value, grad, p.first.data(), p.second.data(), p.value.count());
              else
                cpu::sgd_update(sgd, type, value, grad, p.first.data(), p.value.count());
            });
          got[k].expect_same(p, "parameter " + std::to_string(k) + " of " + std::to_string(count));
        }
      }
}

ddp_case(a_parameter_that_its_owner_changed_begins_anew) {
  const cuda::Half one{0x3c00}, two{0x4000};
  expect_equal(cuda::refreshed(1.0001F, one), 1.0001F, "the master of a parameter that is still its master rounded");
  expect_equal(cuda::refreshed(1.0001F, two), 2.0F, "the master of a parameter that is not");
}
