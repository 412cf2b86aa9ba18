// SPDX-License-Identifier: Apache-2.0
// The flat loops: against the naive rules in F64, bit for bit between instruction sets, and bit for bit between a whole
// array and its slices.
#include "device/cpu/update_kernels.hpp"

#include <cfenv>

#include "device/cpu/reduce.hpp"
#include "optim/rules.hpp"
#include "support/check.hpp"
#include "unit/device/update_state.hpp"

UpdateRule ema_rule() {
  return [](UpdateState& s, size_t from, size_t count) {
    const double decays[] = {0.999, 0.5};
    void* const averages[] = {s.first.at(from), s.second.at(from)};
    cpu::ema_update(decays, 2, s.dtype(), s.value.at(from), averages, static_cast<int64_t>(count));
  };
}

/// One rule of every shape.
std::vector<std::pair<std::string, UpdateRule>> all_rules() {
  std::vector<std::pair<std::string, UpdateRule>> rules;
  for (const double momentum : {0.0, 0.9})
    for (const int nesterov : {0, 1})
      for (const int64_t steps : {0, 3}) {
        if (momentum == 0 && (nesterov == 1 || steps > 0)) continue;
        ddp_sgd_options options = optim::default_sgd_options();
        options.momentum = momentum;
        options.nesterov = nesterov;
        rules.emplace_back("SGD " + std::to_string(rules.size()), sgd_rule(optim::sgd_step(options, 0.1, 0.01, steps)));
      }
  for (const int decoupled : {0, 1}) {
    ddp_adam_options options = optim::default_adam_options();
    options.decoupled = decoupled;
    rules.emplace_back(decoupled != 0 ? "AdamW" : "Adam", adam_rule(optim::adam_step(options, 0.1, 0.01, 7)));
  }
  rules.emplace_back("averages", ema_rule());
  return rules;
}

/// |got - wanted| may be one rounding to the element's type and ten to the compute type, of numbers as large as `magnitude`.
void expect_rounded(const Array& got, size_t i, double wanted, double magnitude, const std::string& what) {
  const double compute = unit_of(cpu::moment_dtype(got.dtype));
  const double smallest = got.dtype == DDP_F16 ? 0x1p-25 : 0x1p-140;
  const double allowed = unit_of(got.dtype) * std::abs(wanted) + 10 * compute * magnitude + smallest;
  if (std::abs(got[i] - wanted) <= allowed) return;
  throw std::runtime_error(what + ", " + dtype_name(got.dtype) + ", element " + std::to_string(i) + ": " +
                           std::to_string(got[i]) + " instead of " + std::to_string(wanted));
}

// Many steps, each compared with the naive step from the state that the loops had reached.
void check_sgd(ddp_dtype dtype, const ddp_sgd_options& options) {
  UpdateState state = random_state(dtype, 1);
  for (int64_t t = 0; t < 40; ++t) {
    const UpdateState before = state;
    fill_random(state.grad, kCount, 1.5, 100 + static_cast<uint64_t>(t));
    sgd_rule(optim::sgd_step(options, options.rate, options.weight_decay, t))(state, 0, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      NaiveElement naive = before.element(i, static_cast<int>(t));
      naive.sgd(options, options.rate, options.weight_decay, state.grad[i]);
      const double magnitude = std::abs(before.value[i]) + std::abs(state.grad[i]) + std::abs(before.first[i]) + 1;
      expect_rounded(state.value, i, naive.value, magnitude, "value");
      if (options.momentum != 0) expect_rounded(state.first, i, naive.buffer, magnitude, "momentum_buffer");
    }
  }
}

ddp_case(sgd_agrees_with_the_naive_rule) {
  for (const ddp_dtype dtype : kFloats)
    for (const double momentum : {0.0, 0.9})
      for (const double dampening : {0.0, 0.3})
        for (const double decay : {0.0, 0.05})
          for (const int nesterov : {0, 1}) {
            if (nesterov == 1 && (momentum == 0 || dampening != 0)) continue;
            ddp_sgd_options options = optim::default_sgd_options();
            options.rate = 0.05;
            options.momentum = momentum;
            options.dampening = dampening;
            options.weight_decay = decay;
            options.nesterov = nesterov;
            check_sgd(dtype, options);
          }
}

void check_adam(ddp_dtype dtype, const ddp_adam_options& options) {
  UpdateState state = random_state(dtype, 2);
  for (int64_t t = 0; t < 60; ++t) {
    const UpdateState before = state;
    fill_random(state.grad, kCount, 1.5, 200 + static_cast<uint64_t>(t));
    adam_rule(optim::adam_step(options, options.rate, options.weight_decay, t))(state, 0, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      NaiveElement naive = before.element(i, static_cast<int>(t));
      naive.adam(options, options.rate, options.weight_decay, state.grad[i]);
      const double moment = std::abs(before.first[i]) + std::abs(state.grad[i]) + std::abs(before.value[i]);
      const double square = before.second[i] + moment * moment;
      expect_rounded(state.first, i, naive.exp_avg, moment, "exp_avg");
      expect_rounded(state.second, i, naive.exp_avg_sq, square, "exp_avg_sq");
      // An error of exp_avg is divided by the root of exp_avg_sq, which may be much smaller than the moment.
      const double correction = 1 - std::pow(options.beta2, static_cast<double>(t + 1));
      const double root = std::sqrt(naive.exp_avg_sq / correction) + options.epsilon;
      double change = options.rate * moment / root / (1 - options.beta1);
      // Scalars are F64 for every type; in F64 the cancellation of 1 - beta2^t shows, here and in the naive rule.
      if (dtype == DDP_F64) change /= correction;
      expect_rounded(state.value, i, naive.value, std::abs(before.value[i]) + change, "value");
    }
  }
}

ddp_case(adam_and_adamw_agree_with_the_naive_rule) {
  for (const ddp_dtype dtype : kFloats)
    for (const int decoupled : {0, 1})
      for (const double decay : {0.0, 0.05})
        for (const double epsilon : {1e-8, 0.1})
          for (const double beta1 : {0.0, 0.9}) {
            ddp_adam_options options = optim::default_adam_options();
            options.rate = 0.02;
            options.beta1 = beta1;
            options.weight_decay = decay;
            options.epsilon = epsilon;
            options.decoupled = decoupled;
            check_adam(dtype, options);
          }
}

// Without the comparison at every step: 500 steps from start to end, F64 arithmetic against F64 arithmetic.
ddp_case(many_adam_steps_end_where_the_naive_ones_do) {
  const ddp_adam_options options = optim::default_adam_options();
  UpdateState state = random_state(DDP_F64, 3);
  std::vector<NaiveElement> naive;
  for (size_t i = 0; i < kCount; ++i) naive.push_back(state.element(i, 0));
  for (int64_t t = 0; t < 500; ++t) {
    fill_random(state.grad, kCount, 1.0, 300 + static_cast<uint64_t>(t));
    adam_rule(optim::adam_step(options, options.rate, options.weight_decay, t))(state, 0, kCount);
    for (size_t i = 0; i < kCount; ++i) naive[i].adam(options, options.rate, options.weight_decay, state.grad[i]);
  }
  // Each step adds at most some 10 roundings of numbers below 4, mostly in both directions.
  for (size_t i = 0; i < kCount; ++i)
    expect(std::abs(state.value[i] - naive[i].value) < 500 * 10 * 4 * unit_of(DDP_F64), "value " + std::to_string(i));
}

// Small multiples of 1/4 are exact in every type, so the result is too.
ddp_case(sgd_is_exact_where_arithmetic_is) {
  ddp_sgd_options options = optim::default_sgd_options();
  options.momentum = 0.5;
  for (const ddp_dtype dtype : kFloats)
    for (const int nesterov : {0, 1}) {
      options.nesterov = nesterov;
      UpdateState state(dtype);
      std::vector<NaiveElement> naive(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        naive[i].value = static_cast<double>(i % 7) - 3;
        state.value.set(i, naive[i].value);
      }
      for (int64_t t = 0; t < 2; ++t) {
        for (size_t i = 0; i < kCount; ++i) state.grad.set(i, static_cast<double>((i + static_cast<size_t>(t)) % 5) - 2);
        sgd_rule(optim::sgd_step(options, 0.5, 0, t))(state, 0, kCount);
        for (size_t i = 0; i < kCount; ++i) {
          naive[i].sgd(options, 0.5, 0, state.grad[i]);
          expect_equal(state.value[i], naive[i].value, std::string("value in ") + dtype_name(dtype));
        }
      }
    }
}

ddp_case(averages_agree_with_the_naive_rule) {
  for (const ddp_dtype dtype : kFloats) {
    constexpr size_t kMany = 10000;  // more than two blocks
    Array value(dtype, kMany);
    std::vector<double> decays;
    for (int k = 0; k < 16; ++k) decays.push_back(1 - std::ldexp(1.0, -k));
    std::vector<Array> averages(decays.size(), Array(cpu::moment_dtype(dtype), kMany));
    std::vector<void*> places;
    for (Array& average : averages) places.push_back(average.data());
    std::vector<std::vector<double>> naive(decays.size(), std::vector<double>(kMany));
    for (uint64_t t = 0; t < 4; ++t) {
      fill_random(value, kMany, 1.0, 400 + t);
      cpu::ema_update(decays.data(), 16, dtype, value.data(), places.data(), kMany);
      for (size_t k = 0; k < decays.size(); ++k)
        for (size_t i = 0; i < kMany; ++i) {
          naive[k][i] = decays[k] * naive[k][i] + (1 - decays[k]) * value[i];
          // Three roundings a step of numbers below 1.
          expect(
              std::abs(averages[k][i] - naive[k][i]) <= static_cast<double>(t + 1) * 3 * unit_of(cpu::moment_dtype(dtype)),
              "average " + std::to_string(k) + " of element " + std::to_string(i));
        }
    }
  }
}

ddp_case(every_instruction_set_gives_the_same_bits) {
  const std::string widest = cpu::instruction_set();
  for (const auto& [name, rule] : all_rules())
    for (const ddp_dtype dtype : kFloats) {
      UpdateState wanted = wild_state(dtype);
      expect(cpu::set_instruction_set("portable"), "portable runs everywhere");
      rule(wanted, 0, kCount);
      for (const char* set : {"avx512", "avx2", "neon"}) {
        if (!cpu::set_instruction_set(set)) continue;
        UpdateState got = wild_state(dtype);
        rule(got, 0, kCount);
        expect_same(got, wanted, name + " with " + set);
      }
    }
  expect(cpu::set_instruction_set(widest.c_str()), "back to the widest");
}

ddp_case(slices_give_the_bits_of_the_whole) {
  std::mt19937_64 random(9);
  for (const auto& [name, rule] : all_rules())
    for (const ddp_dtype dtype : kFloats) {
      UpdateState wanted = wild_state(dtype);
      rule(wanted, 0, kCount);
      UpdateState got = wild_state(dtype);
      for (size_t from = 0; from < kCount;) {
        const size_t count = std::min<size_t>(kCount - from, random() % 37);
        rule(got, from, count);
        from += count;
      }
      expect_same(got, wanted, name + " in slices");
    }
}

/// The gradient scaled and limited by a naive loop, in the type of the arithmetic, gives what the shape inside the rule
/// gives.
ddp_case(a_shaped_gradient_is_the_one_shaped_by_hand) {
  const cpu::GradShape shape{0.375, 0.2};
  cpu::AdamStep adam = optim::adam_step(optim::default_adam_options(), 0.01, 0.1, 4);
  cpu::SgdStep sgd = optim::sgd_step(optim::default_sgd_options(), 0.1, 0.01, 4);
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64}) {
    UpdateState wanted = random_state(dtype, 5);
    fill_random(wanted.grad, kCount, 1.0, 6);
    wanted.grad.set(7, std::numeric_limits<double>::quiet_NaN());
    UpdateState shaped = wanted;
    int high = 0, low = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double limit = dtype == DDP_F32 ? static_cast<double>(static_cast<float>(shape.limit)) : shape.limit;
      const double scaled = wanted.grad[i] * shape.scale;  // exact in F64; rounded when it is set
      high += scaled > limit ? 1 : 0;
      low += scaled < -limit ? 1 : 0;
      wanted.grad.set(i, scaled > limit ? limit : scaled < -limit ? -limit : scaled);
    }
    expect(high > 10 && low > 10, "both limits are met");
    const Array grad = shaped.grad;
    adam_rule(adam)(wanted, 0, kCount);
    sgd_rule(sgd)(wanted, 0, kCount);
    adam.shape = sgd.shape = shape;
    adam_rule(adam)(shaped, 0, kCount);
    sgd_rule(sgd)(shaped, 0, kCount);
    adam.shape = sgd.shape = cpu::GradShape{};
    expect_same_array(shaped.grad, grad, "the gradient in memory");
    shaped.grad = wanted.grad;
    expect_same(shaped, wanted, "the result of a shaped gradient");
  }
}

ddp_case(nothing_outside_the_range_is_touched) {
  for (const auto& [name, rule] : all_rules())
    for (const ddp_dtype dtype : kFloats) {
      UpdateState wanted = wild_state(dtype);
      UpdateState got = wanted;
      rule(got, 17, 0);
      expect_same(got, wanted, name + " over nothing");
      rule(got, 17, 45);
      for (Array UpdateState::*array : {&UpdateState::value, &UpdateState::first, &UpdateState::second}) {
        const auto size = static_cast<size_t>(dtype_size((got.*array).dtype));
        std::copy_n((wanted.*array).bytes.data() + 17 * size, 45 * size, (got.*array).bytes.data() + 17 * size);
      }
      expect_same(got, wanted, name + " around a slice");
    }
}
