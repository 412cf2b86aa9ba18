// SPDX-License-Identifier: Apache-2.0
// The update rules, with the arithmetic of the CPU.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "device/cpu/arrays.hpp"
#include "device/cpu/update_kernels.hpp"
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/launch.hpp"

namespace ddp::test::fake_gpu::entry {
namespace {

constexpr int64_t kMasters = 1024;  // elements with a master copy
constexpr int64_t kHalf = 2;        // bytes of such an element

struct Shaping {
  cpu::GradShape shape;
  const ddp_gpu_gate* gate = nullptr;
  const uint32_t* stop = nullptr;
  double divisor = 0;
};

Shaping read_shape(Touches& touches, const ddp_gpu_shape& shape, ddp_gpu_stop stop) {
  Shaping shaping;
  shaping.shape.scale = shape.scale;
  shaping.shape.limit = shape.limit;
  if (shape.gate != nullptr) shaping.gate = touches.read(shape.gate, sizeof *shape.gate);
  shaping.stop = touches.stop_word(stop);
  shaping.divisor = shape.divisor;
  return shaping;
}

/// The arrays with real addresses.
ddp_gpu_update real_update(Touches& touches, const ddp_gpu_update& update, ddp_dtype dtype, const ddp_gpu_shape& shape) {
  ddp_gpu_update real = update;
  if (update.count == 0) return real;
  using Bytes = unsigned char;
  const int64_t moments = update.count * dtype_size(cpu::moment_dtype(dtype));
  const auto changed = [&](void* memory, int64_t bytes) -> void* {
    return memory == nullptr ? nullptr : touches.change(static_cast<Bytes*>(memory), bytes);
  };
  real.value = touches.change(static_cast<Bytes*>(update.value), update.count * dtype_size(dtype));
  const int64_t bytes = update.count * dtype_size(dtype);
  real.grad = shape.divisor != 0 ? changed(const_cast<void*>(update.grad), bytes)
                                 : touches.read(static_cast<const Bytes*>(update.grad), bytes);
  for (size_t k = 0; k < 2; ++k) real.state[k] = changed(update.state[k], moments);
  real.master = changed(update.master, update.count * static_cast<int64_t>(sizeof(float)));
  return real;
}

cpu::AdamStep step_of(const ddp_gpu_adam_rule& rule) {
  cpu::AdamStep step;
  step.keep = rule.keep;
  step.weight_decay = rule.weight_decay;
  step.beta1 = rule.beta1;
  step.share1 = rule.share1;
  step.beta2 = rule.beta2;
  step.share2 = rule.share2;
  step.size = rule.size;
  step.root_scale = rule.root_scale;
  step.epsilon = rule.epsilon;
  return step;
}

cpu::SgdStep step_of(const ddp_gpu_sgd_rule& rule) {
  cpu::SgdStep step;
  step.rate = rule.rate;
  step.weight_decay = rule.weight_decay;
  step.momentum = rule.momentum;
  step.gradient_share = rule.gradient_share;
  step.mode = static_cast<cpu::Momentum>(rule.mode);
  step.nesterov = rule.nesterov != 0;
  return step;
}

struct Piece {
  void* value;
  const void* grad;
  std::byte* state[2];
  int64_t count;
};

void apply(const cpu::AdamStep& step, ddp_dtype dtype, const Piece& piece) {
  cpu::adam_update(step, dtype, piece.value, piece.grad, piece.state[0], piece.state[1], piece.count);
}
void apply(const cpu::SgdStep& step, ddp_dtype dtype, const Piece& piece) {
  cpu::sgd_update(step, dtype, piece.value, piece.grad, piece.state[0], piece.count);
}

/// Where the value is no longer the copy rounded, its owner changed it, and the copy starts anew from it
/// (optim/masters.hpp).
void refresh(ddp_dtype dtype, const std::byte* value, float* copy, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::byte rounded[kHalf];
    cpu::convert(DDP_F32, copy + i, dtype, rounded, 1);
    if (std::memcmp(rounded, value + i * kHalf, kHalf) != 0) cpu::convert(dtype, value + i * kHalf, DDP_F32, copy + i, 1);
  }
}

template <class Step>
void update_master(const Step& step, ddp_dtype dtype, const ddp_gpu_update& update) {
  auto* const value = static_cast<std::byte*>(update.value);
  const auto* const grad = static_cast<const std::byte*>(update.grad);
  auto* const master = static_cast<float*>(update.master);
  for (int64_t at = 0; at < update.count; at += kMasters) {
    const int64_t n = std::min(kMasters, update.count - at);
    alignas(64) float gradient[kMasters];
    refresh(dtype, value + at * kHalf, master + at, n);
    cpu::convert(dtype, grad + at * kHalf, DDP_F32, gradient, n);
    Piece piece{master + at, gradient, {}, n};
    for (size_t k = 0; k < 2; ++k)
      if (update.state[k] != nullptr) piece.state[k] = static_cast<std::byte*>(update.state[k]) + at * 4;
    apply(step, DDP_F32, piece);
    cpu::convert(DDP_F32, master + at, dtype, value + at * kHalf, n);
  }
}

/// Sums become means, in place.
void divide_gradient(const ddp_gpu_update& update, ddp_dtype dtype, double divisor) {
  const bool wide = dtype == DDP_F64;
  auto* const grad = static_cast<std::byte*>(const_cast<void*>(update.grad));
  for (int64_t i = 0; i < update.count; ++i) {
    double number = 0;
    float single = 0;
    void* const between = wide ? static_cast<void*>(&number) : &single;
    cpu::convert(dtype, grad + i * dtype_size(dtype), wide ? DDP_F64 : DDP_F32, between, 1);
    cpu::scale(wide ? DDP_F64 : DDP_F32, between, 1, 1);  // makes NaNs one
    if (!std::isnan(number)) number /= divisor;
    if (!std::isnan(single)) single /= static_cast<float>(divisor);
    cpu::convert(wide ? DDP_F64 : DDP_F32, between, dtype, grad + i * dtype_size(dtype), 1);
  }
}

/// step_of(number of a rule): its scalars, or none if it is not active.
template <class StepOf>
void run_updates(const std::vector<ddp_gpu_update>& updates, const StepOf& step_of_rule, ddp_dtype dtype,
                 const Shaping& shaping) {
  if (is_stopped(shaping.stop) || (shaping.gate != nullptr && shaping.gate->skip != 0)) return;
  for (const ddp_gpu_update& update : updates) {
    auto active = step_of_rule(static_cast<size_t>(update.rule));
    if (update.count == 0 || !active) continue;
    if (shaping.divisor != 0) divide_gradient(update, dtype, shaping.divisor);
    auto& step = *active;
    step.shape = shaping.shape;
    if (shaping.gate != nullptr) step.shape.scale = shaping.gate->scale;
    if (update.master != nullptr) {
      update_master(step, dtype, update);
      continue;
    }
    apply(step, dtype,
          Piece{update.value,
                update.grad,
                {static_cast<std::byte*>(update.state[0]), static_cast<std::byte*>(update.state[1])},
                update.count});
  }
}

bool is_sound(const ddp_gpu_update& update, ddp_dtype dtype, int64_t rule_count) {
  return update.count >= 0 && update.rule >= 0 && update.rule < rule_count &&
         (update.master == nullptr || dtype == DDP_F16 || dtype == DDP_BF16);
}

/// What a rule cannot do without.
bool is_complete(const ddp_gpu_update& update, const cpu::AdamStep&) {
  return update.state[0] != nullptr && update.state[1] != nullptr;
}
bool is_complete(const ddp_gpu_update& update, const cpu::SgdStep& step) {
  return step.mode == cpu::Momentum::kNone || update.state[0] != nullptr;
}

template <class Rule>
int32_t launch_updates(const char* name, const ddp_gpu_update* updates, int64_t count, const Rule* rules, int64_t rule_count,
                       int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) {
  return launch(name, stream, [&](Touches& touches) -> Work {
    if (!is_floating_dtype(dtype) || count < 0 || shape == nullptr) return nullptr;
    const auto type = static_cast<ddp_dtype>(dtype);
    using Step = decltype(step_of(*rules));
    std::vector<Step> steps;
    for (int64_t k = 0; k < rule_count; ++k) steps.push_back(step_of(rules[k]));
    std::vector<ddp_gpu_update> real;
    for (int64_t k = 0; k < count; ++k) {
      if (!is_sound(updates[k], type, rule_count)) return nullptr;
      if (!is_complete(updates[k], steps[static_cast<size_t>(updates[k].rule)])) return nullptr;
      real.push_back(real_update(touches, updates[k], type, *shape));
    }
    const Shaping shaping = read_shape(touches, *shape, stop);
    return [=, real = std::move(real), steps = std::move(steps)] {
      run_updates(
          real, [&](size_t rule) { return std::optional<Step>(steps[rule]); }, type, shaping);
    };
  });
}

/// Rules that are in device memory and are read when the kernel runs.
template <class Rule>
int32_t launch_planned(const char* name, const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules,
                       int64_t rule_count, int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream,
                       Rule ddp_gpu_planned_rule::*of) {
  return launch(name, stream, [&](Touches& touches) -> Work {
    if (!is_floating_dtype(dtype) || count < 0 || rule_count < 1 || shape == nullptr) return nullptr;
    const auto type = static_cast<ddp_dtype>(dtype);
    std::vector<ddp_gpu_update> real;
    for (int64_t k = 0; k < count; ++k) {
      if (!is_sound(updates[k], type, rule_count)) return nullptr;
      real.push_back(real_update(touches, updates[k], type, *shape));
    }
    const auto* const planned = touches.read(rules, rule_count * static_cast<int64_t>(sizeof *rules));
    const Shaping shaping = read_shape(touches, *shape, stop);
    return [=, real = std::move(real)] {
      using Step = decltype(step_of(planned->*of));
      const auto step = [&](size_t rule) {
        return planned[rule].active != 0 ? std::optional<Step>(step_of(planned[rule].*of)) : std::nullopt;
      };
      run_updates(real, step, type, shaping);
    };
  });
}

}  // namespace

int32_t adam(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_adam_rule* rules, int64_t rule_count, int32_t dtype,
             const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) {
  return launch_updates("adam", updates, count, rules, rule_count, dtype, shape, stop, stream);
}

int32_t sgd(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_sgd_rule* rules, int64_t rule_count, int32_t dtype,
            const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) {
  return launch_updates("sgd", updates, count, rules, rule_count, dtype, shape, stop, stream);
}

int32_t planned_adam(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                     int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) {
  return launch_planned("planned_adam", updates, count, rules, rule_count, dtype, shape, stop, stream,
                        &ddp_gpu_planned_rule::adam);
}

int32_t planned_sgd(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                    int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) {
  return launch_planned("planned_sgd", updates, count, rules, rule_count, dtype, shape, stop, stream,
                        &ddp_gpu_planned_rule::sgd);
}

}  // namespace ddp::test::fake_gpu::entry
