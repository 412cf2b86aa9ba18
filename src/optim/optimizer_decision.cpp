// SPDX-License-Identifier: Apache-2.0
// Steps that look at the whole gradient first.
#include <cmath>
#include <string>

#include "group/gpu.hpp"
#include "model/gradients.hpp"
#include "model/optimizer_slot.hpp"
#include "optim/optimizer.hpp"

namespace ddp::optim {

device::GradShape for_devices(const cpu::GradShape& shape) noexcept { return {shape.scale, shape.limit, nullptr, 0}; }

template <class Norms>
void Optimizer::add_owned_grad(int32_t index, Norms& norms) const {
  const Tensor& grad = model().table().parameter(index).grad;
  for (const OwnedSpan& part : owned(index)) norms.add(flat_part(grad, part.first, part.count));
}

double Optimizer::grad_norm() const {
  const double norm = progress().norm;
  return norm == kNoNorm && norm_is_decided_ ? decision_->norm() : norm;
}

bool Optimizer::counts(int32_t index) const noexcept {
  return parameters_.has(index) && model().pass().results().was_used(index);
}

bool Optimizer::is_gpus_alone() const noexcept {
  const Parameters& table = model().table();
  if (!gpu_rule() || home().is_immediate()) return false;
  for (int32_t index = 0; index < table.parameter_count(); ++index)
    if (const Tensor& value = table.parameter(index).value;
        parameters_.has(index) && device::of(value).is_immediate() && value.count > 0)
      return false;
  return true;
}

bool Optimizer::is_planned() const noexcept {
  const bool dynamic = progress_.loss_scale.is_dynamic();
  if (policy_.nonfinite == DDP_NONFINITE_FAIL && !dynamic) return false;  // the host is to name the parameter
  if (looks_beyond()) return false;  // the host looks at the gradients of all optimizers
  const bool may_skip = policy_.nonfinite == DDP_NONFINITE_SKIP || dynamic;
  return (may_skip || (gpu_steps_ != nullptr && gpu_steps_->is_captured())) && is_gpus_alone();
}

void Optimizer::require_capturable() const {
  const auto require = [](bool good, const char* why) {
    if (!good)
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "ddp_optimizer_step: the stream is being captured into a CUDA graph, which cannot hold this step: %s",
                       why);
  };
  require(gpu_rule().has_value(), "the host calls the program's rule; call it outside");
  require(is_gpus_alone(), "some parameters are in host memory; call it outside");
  require(!request().in_pass(),
          "the optimizer updates within the pass (in_backward), so its step is part of the pass; call both outside, or "
          "set in_backward = 0");
  require(policy_.nonfinite != DDP_NONFINITE_FAIL || progress_.loss_scale.is_dynamic(),
          "with DDP_NONFINITE_FAIL the host has to name the parameter; set nonfinite = DDP_NONFINITE_SKIP");
  require(
      !looks_beyond(),
      "with a dynamic loss scale the host looks at the gradients of all optimizers of the model; use a fixed one, or one "
      "optimizer");
  require(gpu_steps_ != nullptr && (decision_ != nullptr || !needs_whole_gradient(policy_, progress_.loss_scale)),
          "it takes memory; make one step with these options before the capture");
}

/// What a step needs on a GPU, before its first block.
void Optimizer::prepare_gpu() {
  const Parameters& table = model().table();
  updates().reserve(table);
  updates().set_planned({});
  if (request().in_pass() || !is_planned()) static_cast<void>(progress());
  if (!is_gpus_alone()) return;
  if (gpu_steps_ == nullptr) gpu_steps_ = std::make_unique<GpuSteps>(gpu::of(table), table.parameter_count());
  if (decision_ == nullptr && needs_whole_gradient(policy_, progress_.loss_scale))
    decision_ = std::make_unique<GpuDecision>(gpu::of(table));
}

void Optimizer::copy_loss_scale(const Tensor& to, void* stream) {
  constexpr const char* kFunction = "ddp_optimizer_copy_loss_scale";
  if (to.count != 1 || (to.dtype != DDP_F32 && to.dtype != DDP_F64))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: tensor is %s; it must have one element, F32 or F64", kFunction,
                     describe(to).c_str());
  if (gpu_steps_ != nullptr && !device::of(to).is_immediate()) return gpu_steps_->copy_loss_scale(progress_, to, stream);
  const device::Device& home = device::of(to);
  home.refuse_capture(stream, kFunction,
                      "the host has to wait; make one step before, of a model whose parameters are all on the GPU");
  const double scale = loss_scale();
  const auto narrow = static_cast<float>(scale);
  const void* const from = to.dtype == DDP_F64 ? static_cast<const void*>(&scale) : &narrow;
  home.copy(to.data, from, to.bytes(), stream);
  home.synchronize(stream);  // it comes from this function's memory
}

/// A step that the GPU decides about and counts. A sharded one communicates all the time, so all of it is on the
/// communication stream.
void Optimizer::make_planned_step(void* stream) {
  if (!policy_.shard || model().group().size() == 1) return plan_and_update(stream);
  model().group().gpu().in_line(stream, [this](void* communication) { plan_and_update(communication); });
}

void Optimizer::plan_and_update(void* stream) {
  const bool looks = needs_whole_gradient(policy_, progress_.loss_scale);
  const int64_t* const words = looks ? start_sum_of_squares(stream) : nullptr;
  if (!gpu_steps_->has_counts()) gpu_steps_->hand_over(progress_);
  for (int32_t i = 0; i < model().table().parameter_count(); ++i)
    if (counts(i)) gpu_steps_->take_part(i);
  shape_.gate = gpu_steps_->plan({policy_, *gpu_rule(), rate(), words, model().group().gpu().stop_step_word()}, stream);
  planned_ = true;
  updates().set_planned(gpu_steps_->planned());
  update_all(stream);
}

/// The words of the sum over all ranks, in the order of the stream.
const int64_t* Optimizer::start_sum_of_squares(void* stream) {
  gpu::Norms& norms = decision_->norms();
  norms.clear();
  for (int32_t i = 0; i < model().table().parameter_count(); ++i)
    if (counts(i)) add_owned_grad(i, norms);
  int64_t* const words = norms.start_sum(2, stream);
  if (!policy_.shard) return words;
  const gpu::Device& device = gpu::of(model().table());
  Tensor sum = flat_tensor(words, DDP_I64, static_cast<int64_t>(ExactSum::kWords));
  sum.device_index = device.index();
  sum.device = &device;
  model().group().all_reduce(sum, DDP_SUM, stream);
  return words;
}

bool Optimizer::decide_step(void* stream) {
  const bool in_stream = decides_in_stream();
  if (in_stream && decision_ == nullptr) decision_ = std::make_unique<GpuDecision>(gpu::of(model().table()));
  norm_is_decided_ = in_stream;
  if (in_stream) {
    progress_.norm = kNoNorm;
    decision_->norms().clear();
    for (int32_t i = 0; i < model().table().parameter_count(); ++i)
      if (counts(i)) add_owned_grad(i, decision_->norms());
    shape_.gate = decision_->decide(progress_.loss_scale.scale(), policy_.max_norm, stream);
    return true;
  }
  const Decision decision = look_at_gradients(stream);
  progress_.norm = decision.norm;
  if (decision.kind == Decision::Kind::kFail) report_nonfinite(stream);
  const bool good = decision.kind == Decision::Kind::kStep;
  progress_.loss_scale.count(good);
  if (!good) ++progress_.skipped;
  shape_ = for_devices(decision.shape);
  return good;
}

/// Is the length all that matters, and one device, which is not the host, knows it?
bool Optimizer::decides_in_stream() const noexcept {
  if (home().is_immediate() || policy_.shard || policy_.nonfinite != DDP_NONFINITE_KEEP || progress_.loss_scale.is_dynamic())
    return false;
  const Parameters& table = model().table();
  for (int32_t i = 0; i < table.parameter_count(); ++i)
    if (const Tensor& value = table.parameter(i).value; device::of(value).is_immediate() && value.count > 0 && counts(i))
      return false;
  return true;
}

Decision Optimizer::look_at_gradients(void* stream) {
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  ExactSum sum;
  if (stage != nullptr && stage->norm()) {
    sum = *stage->norm();
  } else {
    norms_.clear();
    for (int32_t i = 0; i < model().table().parameter_count(); ++i)
      if (counts(i)) add_owned_grad(i, norms_);
    sum = norms_.sum(2, stream);
  }
  if (policy_.shard) model::join_sums(model().group(), sum);
  bool finite = sum.all_finite();
  if (looks_beyond()) {
    model::OptimizerSlot& all = model().optimizer_slot();
    const std::optional<bool> known = all.finite();
    finite = known ? *known : model().gradients().are_finite_beyond(parameters_, stream) && finite;
    all.note_finite(finite);
  }
  return decide(policy_, progress_.loss_scale, std::sqrt(sum.value()), finite);
}

bool Optimizer::is_finite(int32_t index, void* stream) {
  norms_.clear();
  add_owned_grad(index, norms_);
  return std::isfinite(norms_.largest(stream));
}

/// Every rank comes here; each names what it has seen.
void Optimizer::report_nonfinite(void* stream) {
  std::string mine;
  for (int32_t i = 0; i < model().table().parameter_count() && mine.empty(); ++i)
    if (counts(i) && !is_finite(i, stream)) mine = model().table().parameter(i).name;
  if (policy_.shard)
    for (const std::string& theirs : model().group().gather("gradients that are not finite", mine))
      if (mine.empty() && !theirs.empty()) mine = theirs;
  throw Error(DDP_ERROR_INVALID_STATE,
              "ddp_optimizer_step: the gradient of parameter \"" + mine +
                  "\" has infinite or NaN elements, so no parameter was changed; lower the learning rate or the loss "
                  "scale, or set nonfinite = DDP_NONFINITE_SKIP");
}

}  // namespace ddp::optim
