// SPDX-License-Identifier: Apache-2.0
// The kernels of the module that change parameters and averages, called through its table, compared with the CPU's loops:
// the same bits; and what stops them.
#include "device/cpu/update_kernels.hpp"
#include "gpu/support/kernel_arrays.hpp"
#include "optim/rules.hpp"

using namespace ddp::test;

namespace {

ddp_case(averages_have_the_bits_of_the_cpu) {
  const card::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats) {
    const ddp_dtype wide = cpu::moment_dtype(dtype);
    Arrays value(dtype, all_lengths(dtype, 7), 1), average(wide, all_lengths(wide, 8), 0);
    auto wanted = average.host;
    const double decay = 0.99;
    std::vector<ddp_gpu_span> spans;
    for (size_t k = 0; k < wanted.size(); ++k) {
      spans.push_back({value.at(k), average.at(k), value.count(k)});
      void* const to = wanted[k].data();
      cpu::ema_update(&decay, 1, dtype, value.host[k].data(), &to, value.count(k));
    }
    GPU_CALL(ema(spans.data(), static_cast<int64_t>(spans.size()), dtype, decay, nullptr, stream.get()));
    stream.wait();
    const auto got = average.read();
    for (size_t k = 0; k < got.size(); ++k) expect_same(wide, got[k], wanted[k], "average");
  }
}

/// A rule's arrays on the device, and the CPU's results from them.
struct Rule {
  ddp_dtype dtype;
  Arrays value, grad, first, second;
  std::vector<std::string> values, firsts, seconds;
  std::vector<ddp_gpu_update> updates;

  Rule(ddp_dtype element, int64_t offset)
      : dtype(element),
        value(element, all_lengths(element, 11), offset),
        grad(element, all_lengths(element, 12, true), 1 - offset),
        first(cpu::moment_dtype(element), all_lengths(cpu::moment_dtype(element), 13), offset),
        second(cpu::moment_dtype(element), positive(), 0),
        values(value.host),
        firsts(first.host),
        seconds(second.host) {
    for (size_t k = 0; k < values.size(); ++k)
      updates.push_back(
          {value.at(k), grad.at(k), {first.at(k), second.at(k)}, nullptr, value.count(k), static_cast<int64_t>(k % 2)});
  }
  [[nodiscard]] std::vector<std::string> positive() const {
    auto data = all_lengths(cpu::moment_dtype(dtype), 14);
    for (std::string& array : data)
      for (size_t i = 0; i < array.size() / static_cast<size_t>(dtype_size(cpu::moment_dtype(dtype))); ++i)
        set_element(cpu::moment_dtype(dtype), array.data(), i,
                    std::abs(get_element(cpu::moment_dtype(dtype), array.data(), i)));
    return data;
  }
  void expect_same_arrays(const std::string& what) const {
    const auto v = value.read(), f = first.read(), s = second.read();
    for (size_t k = 0; k < v.size(); ++k) {
      expect_same(dtype, v[k], values[k], what + ", value");
      expect_same(cpu::moment_dtype(dtype), f[k], firsts[k], what + ", first moment");
      expect_same(cpu::moment_dtype(dtype), s[k], seconds[k], what + ", second moment");
    }
  }
};

const cpu::GradShape kShapes[] = {{1, kInfinity}, {0.125, kInfinity}, {0.3, 0.7}};

ddp_case(adam_has_the_bits_of_the_cpu) {
  const card::Stream stream(kGpu);
  const ddp_gpu_adam_rule rules[2] = {{0.999, 0, 0.9, 0.1, 0.999, 0.001, 0.0123, 3.7, 1e-8},
                                      {1, 0.05, 0.8, 0.2, 0.99, 0.01, 0.001, 1.5, 1e-6}};
  for (const ddp_dtype dtype : kFloats)
    for (const cpu::GradShape& shape : kShapes)
      for (const int64_t offset : {0, 1}) {
        Rule rule(dtype, offset);
        for (size_t k = 0; k < rule.values.size(); ++k) {
          const ddp_gpu_adam_rule& r = rules[k % 2];
          const cpu::AdamStep step{r.keep,   r.weight_decay, r.beta1,      r.share1,  r.beta2,
                                   r.share2, r.size,         r.root_scale, r.epsilon, shape};
          cpu::adam_update(step, dtype, rule.values[k].data(), rule.grad.host[k].data(), rule.firsts[k].data(),
                           rule.seconds[k].data(), rule.value.count(k));
        }
        const ddp_gpu_shape how{shape.scale, shape.limit, nullptr, 0};
        GPU_CALL(adam(rule.updates.data(), static_cast<int64_t>(rule.updates.size()), rules, 2, dtype, &how, nullptr,
                      stream.get()));
        stream.wait();
        rule.expect_same_arrays("Adam");
      }
}

ddp_case(sgd_has_the_bits_of_the_cpu) {
  const card::Stream stream(kGpu);
  const cpu::Momentum modes[] = {cpu::Momentum::kNone, cpu::Momentum::kFirst, cpu::Momentum::kRunning};
  for (const ddp_dtype dtype : kFloats)
    for (const cpu::GradShape& shape : kShapes)
      for (const int32_t mode : {0, 1, 2})
        for (const int32_t nesterov : {0, 1}) {
          if (mode == 0 && nesterov == 1) continue;
          Rule rule(dtype, 0);
          const ddp_gpu_sgd_rule rules[2] = {{0.05, 0, 0.9, 1, mode, nesterov}, {0.01, 0.1, 0.5, 0.7, mode, nesterov}};
          for (size_t k = 0; k < rule.values.size(); ++k) {
            const ddp_gpu_sgd_rule& r = rules[k % 2];
            const cpu::SgdStep step{r.rate, r.weight_decay, r.momentum, r.gradient_share, modes[mode], nesterov == 1, shape};
            cpu::sgd_update(step, dtype, rule.values[k].data(), rule.grad.host[k].data(),
                            mode == 0 ? nullptr : rule.firsts[k].data(), rule.value.count(k));
            if (mode == 0) rule.updates[k].state[0] = nullptr;
            rule.updates[k].state[1] = nullptr;
          }
          const ddp_gpu_shape how{shape.scale, shape.limit, nullptr, 0};
          GPU_CALL(sgd(rule.updates.data(), static_cast<int64_t>(rule.updates.size()), rules, 2, dtype, &how, nullptr,
                       stream.get()));
          stream.wait();
          rule.expect_same_arrays("SGD");
        }
}

/// Two parameters that have made different numbers of steps, and a frozen one, in three steps that the device counts.
ddp_case(a_planned_step_has_the_bits_of_the_cpu) {
  const card::Stream stream(kGpu);
  void *host = nullptr, *on_device = nullptr;
  GPU_CALL(host_alloc(&host, &on_device, sizeof(ddp_gpu_progress) + 3 * sizeof(ddp_gpu_parameter)));
  auto* const progress = static_cast<ddp_gpu_progress*>(host);
  auto* const parameters = reinterpret_cast<ddp_gpu_parameter*>(progress + 1);
  const card::Memory gate(kGpu, sizeof(ddp_gpu_gate)), rules(kGpu, 3 * sizeof(ddp_gpu_planned_rule));
  const ddp_adam_options options = optim::default_adam_options();
  *progress = {0.01, 4, 1, 1, 1, 4, 0, 0, 0, 0, -1};
  for (int64_t k = 0; k < 3; ++k) parameters[k] = {0.1, k == 2 ? 0.0 : 1.5, 1000 * k};
  const uint64_t used = 7;
  ddp_gpu_step step{.progress = static_cast<ddp_gpu_progress*>(on_device)};
  step.parameters = reinterpret_cast<ddp_gpu_parameter*>(step.progress + 1);
  step.count = 3;
  step.used = &used;
  step.rule = {1, options.decoupled, 0, 0, options.beta1, options.beta2, options.epsilon, 0, 0};
  step.gate = static_cast<ddp_gpu_gate*>(gate.data());
  step.rules = static_cast<ddp_gpu_planned_rule*>(rules.data());
  Rule arrays(DDP_F32, 0);
  for (size_t k = 0; k < arrays.updates.size(); ++k) arrays.updates[k].rule = static_cast<int64_t>(k % 3);
  for (int64_t made = 0; made < 3; ++made) {
    for (size_t k = 0; k < arrays.values.size(); ++k) {
      if (k % 3 == 2) continue;
      cpu::AdamStep wanted = optim::adam_step(options, 0.01 * 1.5, 0.1, 1000 * static_cast<int64_t>(k % 3) + made);
      wanted.shape.scale = 0.25;
      cpu::adam_update(wanted, DDP_F32, arrays.values[k].data(), arrays.grad.host[k].data(), arrays.firsts[k].data(),
                       arrays.seconds[k].data(), arrays.value.count(k));
    }
    const ddp_gpu_shape shape{1, kInfinity, step.gate, 0};
    GPU_CALL(plan_step(&step, nullptr, stream.get()));
    GPU_CALL(planned_adam(arrays.updates.data(), static_cast<int64_t>(arrays.updates.size()), step.rules, 3, DDP_F32, &shape,
                          nullptr, stream.get()));
    stream.wait();
    arrays.expect_same_arrays("step " + std::to_string(made));
    expect_equal(progress->steps, made + 1, "steps");
    for (int64_t k = 0; k < 3; ++k)
      expect_equal(parameters[k].steps, 1000 * k + (k == 2 ? 0 : made + 1), "steps of a parameter");
  }
  GPU_CALL(host_free(host));
}

ddp_case(a_stop_or_a_closed_gate_changes_nothing) {
  const card::Stream stream(kGpu);
  void *host = nullptr, *on_device = nullptr;
  GPU_CALL(host_alloc(&host, &on_device, 8));
  const card::Memory gate(kGpu, sizeof(ddp_gpu_gate));
  const ddp_gpu_gate closed{1, 1, 1, 0};
  gate.write(std::string(reinterpret_cast<const char*>(&closed), sizeof closed));
  const auto stop = static_cast<ddp_gpu_stop>(on_device);
  const ddp_gpu_adam_rule rule{0.999, 0, 0.9, 0.1, 0.999, 0.001, 0.0123, 3.7, 1e-8};
  for (const bool by_gate : {false, true}) {
    Rule arrays(DDP_F32, 0);
    for (ddp_gpu_update& update : arrays.updates) update.rule = 0;
    *static_cast<volatile uint32_t*>(host) = by_gate ? 0 : 1;
    const ddp_gpu_shape shape{1, kInfinity, by_gate ? static_cast<const ddp_gpu_gate*>(gate.data()) : nullptr, 0};
    const auto count = static_cast<int64_t>(arrays.updates.size());
    GPU_CALL(adam(arrays.updates.data(), count, &rule, 1, DDP_F32, &shape, stop, stream.get()));
    const ddp_gpu_span span{arrays.grad.at(0), arrays.value.at(0), arrays.value.count(0)};
    if (!by_gate) GPU_CALL(move(&span, 1, DDP_F32, DDP_F32, 1, kInfinity, stop, stream.get()));
    if (!by_gate) GPU_CALL(ema(&span, 1, DDP_F32, 0.5, stop, stream.get()));
    stream.wait();
    arrays.expect_same_arrays(by_gate ? "a closed gate" : "a stop");
  }
  GPU_CALL(host_free(host));
}

gpu_cases(card::need_devices(1));

}  // namespace
