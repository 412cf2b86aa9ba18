// SPDX-License-Identifier: Apache-2.0
#include "optim/gpu_steps.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace ddp::optim {
namespace {

constexpr const char* kWhat = "the steps of an optimizer";

int64_t bytes_of(int32_t parameters, size_t each) noexcept { return int64_t{parameters} * static_cast<int64_t>(each); }

}  // namespace

GpuSteps::GpuSteps(const gpu::Device& device, int32_t parameters)
    : device_(device),
      count_(parameters),
      counts_(device, static_cast<int64_t>(sizeof(ddp_gpu_progress)) + bytes_of(parameters, sizeof(ddp_gpu_parameter)),
              kWhat),
      rules_(device, bytes_of(parameters, sizeof(device::PlannedRule)), kWhat),
      gate_(device, sizeof(ddp_gpu_gate), kWhat),
      used_last_(device),
      used_((static_cast<size_t>(parameters) + 63) / 64) {}

void GpuSteps::hand_over(const Progress& progress) noexcept {
  const ddp_loss_scale_options& options = progress.loss_scale.options();
  *this->progress() = {progress.groups.rate(),
                       progress.loss_scale.scale(),
                       options.growth,
                       options.backoff,
                       options.minimum,
                       options.maximum,
                       options.interval,
                       progress.loss_scale.good_steps(),
                       progress.groups.step_count(),
                       progress.skipped,
                       progress.norm};
  for (int32_t i = 0; i < count_; ++i)
    parameters()[i] = {progress.groups.weight_decay_of(i), progress.groups.rate_scale_of(i), progress.groups.steps_of(i)};
  has_counts_ = true;
}

void GpuSteps::await() const { is_captured_ ? device_.synchronize() : used_last_.synchronize(); }

void GpuSteps::get(Progress& progress) {
  await();
  const ddp_gpu_progress& now = *this->progress();
  progress.loss_scale.resume(now.loss_scale, now.good_steps);
  progress.groups.set_step_count(now.steps);
  progress.skipped = now.skipped;
  progress.norm = now.norm;
  for (int32_t i = 0; i < count_; ++i) progress.groups.set_steps_of(i, parameters()[i].steps);
  has_counts_ = is_captured_;
}

void GpuSteps::put(const Progress& progress) {
  if (!is_captured_) return;
  await();
  hand_over(progress);
}

void GpuSteps::put_rate(double rate) {
  if (!is_captured_) return;
  await();
  progress()->rate = rate;
}

/// Is the stream captured? Then launches read the rate from here on, which ordinary steps have not.
bool GpuSteps::begin_capture(void* stream, double rate) {
  const bool captured = device_.is_capturing(stream);
  if (captured && !is_captured_) progress()->rate = rate;
  is_captured_ = is_captured_ || captured;
  return captured;
}

const ddp_gpu_gate* GpuSteps::plan(const Step& step, void* stream) {
  auto* const counts = static_cast<std::byte*>(counts_.on_device());
  const bool captured = begin_capture(stream, step.rate);
  ddp_gpu_step plan{};
  plan.progress = reinterpret_cast<ddp_gpu_progress*>(counts);
  plan.parameters = reinterpret_cast<ddp_gpu_parameter*>(counts + sizeof(ddp_gpu_progress));
  plan.count = count_;
  plan.used = used_.data();
  plan.words = step.words;
  plan.max_norm = step.policy.max_norm;
  plan.skip_nonfinite = step.policy.nonfinite == DDP_NONFINITE_SKIP ? 1 : 0;
  plan.has_rate = is_captured_ ? 0 : 1;
  plan.rate = step.rate;
  plan.rule = step.rule;
  plan.gate = reinterpret_cast<ddp_gpu_gate*>(gate_.data());
  plan.rules = reinterpret_cast<device::PlannedRule*>(rules_.data());
  const gpu::Timed timed(device_, stream, trace::GpuWork::kDecide);
  const gpu::Device::Current current(device_);
  const int32_t code = device_.table().plan_step(&plan, step.stop, stream);
  std::fill(used_.begin(), used_.end(), 0);
  device_.check(code, "deciding about a step");
  if (!captured) used_last_.record(stream);
  return plan.gate;
}

void GpuSteps::copy_loss_scale(const Progress& progress, const Tensor& to, void* stream) {
  const bool captured = begin_capture(stream, progress.groups.rate());
  if (!has_counts_ && captured) hand_over(progress);
  if (!has_counts_) this->progress()->loss_scale = progress.loss_scale.scale();  // it is that already, or nothing uses it
  auto* const counts = static_cast<std::byte*>(counts_.on_device());
  const device::Span span{counts + offsetof(ddp_gpu_progress, loss_scale), to.data, 1};
  device_.apply({device::Operation::Kind::kCopy, 1, "copying the loss scale"}, &span, 1, DDP_F64, to.dtype, {stream});
  if (!captured) used_last_.record(stream);
}

device::PlannedRules GpuSteps::planned() const noexcept {
  return {reinterpret_cast<const device::PlannedRule*>(rules_.data()), count_};
}

const ddp_gpu_gate* GpuDecision::decide(double loss_scale, double max_norm, void* stream) {
  const gpu::Device::Current current(device_);
  auto* const gate = reinterpret_cast<ddp_gpu_gate*>(gate_.data());
  const int64_t* const words = norms_.start_sum(2, stream);
  const gpu::Timed timed(device_, stream, trace::GpuWork::kDecide);
  device_.check(device_.table().decide(words, loss_scale, max_norm, 0, gate, stream), "deciding about a step");
  device_.copy(copy_.host(), gate, sizeof *gate, stream);
  decided_.record(stream);
  return gate;
}

double GpuDecision::norm() const {
  decided_.synchronize();
  ddp_gpu_gate gate;
  std::memcpy(&gate, copy_.host(), sizeof gate);
  return gate.norm;
}

}  // namespace ddp::optim
