// The memory of gradients, what a model does with them between passes, and for the optimizer that takes part in them.
#include <algorithm>
#include <cmath>

#include "bootstrap/control/call_state.hpp"
#include "core/attempt.hpp"
#include "group/consensus.hpp"
#include "model/gradient_walk.hpp"
#include "model/model.hpp"
#include "pass/pass.hpp"

namespace ddp::model {
namespace {

constexpr const char* kTooLate =
    "so it would not see the change; use the optimizer's options max_norm, clip_value and ddp_optimizer_set_loss_scale, or "
    "in_backward = 0";

}  // namespace

std::byte* Model::alloc_grads_beside(const Tensor& value, int64_t bytes) {
  grad_memory_.reserve(grad_memory_.size() + 1);
  grad_memory_.push_back(group_->alloc_beside(value, bytes));
  return static_cast<std::byte*>(grad_memory_.back());
}

/// Memory for the gradients that libddp owns: one block per bucket, gradients in bucket order on 64-byte boundaries; one
/// block for a gradient that is split over buckets.
void Model::allocate_grads(const Plan& plan) {
  const auto is_owned = [this](const PlannedPiece& piece) { return table_.parameter(piece.parameter).owned_grad; };
  const auto allocate = [&] {
    for (const PlannedBucket& bucket : plan) {
      if (bucket.count == 0 || std::none_of(bucket.pieces.begin(), bucket.pieces.end(), is_owned)) continue;
      const PlannedPiece& first = bucket.pieces.front();
      Parameter& front = table_.parameter(first.parameter);
      if (first.count < front.grad.count) {  // it is alone in its bucket, and its last elements come first
        if (first.first + first.count == front.grad.count)
          front.grad.data = alloc_grads_beside(front.value, front.grad.bytes());
        continue;
      }
      const int64_t element = dtype_size(bucket.dtype);
      std::byte* const base = alloc_grads_beside(front.value, bucket.count * element);
      for (const PlannedPiece& piece : bucket.pieces)
        if (is_owned(piece)) table_.parameter(piece.parameter).grad.data = base + piece.offset * element;
    }
  };
  on_error([&] { group::all_or_none(*group_, "gradient memory", allocate); },
           [this](const Error&) {
             for (void* memory : grad_memory_) group_->free(memory);
             grad_memory_.clear();
           });
}

GradientWalk& Model::walk() {
  if (walk_ == nullptr) walk_ = std::make_unique<GradientWalk>(table_);
  return *walk_;
}

void Model::zero_grad(void* stream) {
  require_ready("ddp_model_zero_grad");
  pass_->forget_gradients();
  walk().zero(stream);
}

double Model::grad_norm(double p, void* stream) {
  require_ready("ddp_model_get_grad_norm");
  if (p != 1.0 && p != 2.0 && !(std::isinf(p) && p > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_get_grad_norm: p is %g; it is 1, 2 or INFINITY", p);
  if (has_sliced_gradients() && !is_sharded())
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_get_grad_norm: each rank has the mean in its own slice only, and the optimizer with shard that "
                "made it so is destroyed; "
                "make a pass first");
  device::of(table_).refuse_capture(stream, "ddp_model_get_grad_norm", "the host has to wait for the norm");
  const bootstrap::CallState::In inside(is_sharded() ? &group_->calls() : nullptr, bootstrap::UserCall::kGetGradNorm,
                                        number_);
  if (std::isinf(p)) return largest_gradient(stream);
  const ExactSum sum = sum_of_gradients(static_cast<int32_t>(p), stream);
  return p == 2.0 ? std::sqrt(sum.value()) : sum.value();
}

/// The norms of what this rank knows of each gradient: all of it, or what it owns.
device::Norms& Model::norms_of_gradients() {
  const pass::OptimizerStage* const stage = is_sharded() ? pass_->stage() : nullptr;
  return walk().norms([&](int32_t index, device::Norms& norms) {
    const Tensor& grad = table_.parameter(index).grad;
    if (stage == nullptr) return norms.add(grad);
    for (const OwnedSpan& part : stage->owned(index)) norms.add(flat_part(grad, part.first, part.count));
  });
}

double Model::largest_gradient(void* stream) {
  double most = norms_of_gradients().largest(stream);
  if (is_sharded()) group_->all_reduce(flat_tensor(&most, DDP_F64, 1), DDP_MAX);
  return most;
}

ExactSum Model::sum_of_gradients(int32_t p, void* stream) {
  ExactSum sum = norms_of_gradients().sum(p, stream);
  if (is_sharded()) join_sums(*group_, sum);
  return sum;
}

void join_sums(group::Group& group, ExactSum& sum) {
  group.all_reduce(flat_tensor(sum.words().data(), DDP_I64, static_cast<int64_t>(ExactSum::kWords)), DDP_SUM);
}

void Model::scale_grad(double factor, void* stream) {
  require_ready("ddp_model_scale_grad");
  require_no_made_step("ddp_model_scale_grad", kTooLate);
  if (pass::OptimizerStage* const stage = pass_->stage(); stage != nullptr) stage->forget_norm();
  walk().change({device::Operation::Kind::kScale, factor, "changing gradients"}, stream);
}

double Model::clip_grad_norm(double max_norm, double p, void* stream) {
  if (!(max_norm > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_clip_grad_norm: max_norm is %g; it must be above 0", max_norm);
  require_ready("ddp_model_clip_grad_norm");
  require_no_made_step("ddp_model_clip_grad_norm", kTooLate);
  constexpr double kGuard = 1e-6;  // torch.nn.utils.clip_grad_norm_'s
  require_ready("ddp_model_clip_grad_norm");
  const bootstrap::CallState::In inside(is_sharded() ? &group_->calls() : nullptr, bootstrap::UserCall::kClipGradNorm,
                                        number_);
  const double norm = grad_norm(p, stream);
  const double factor = max_norm / (norm + kGuard);
  if (!(factor >= 1)) scale_grad(factor, stream);  // a NaN goes on to the gradients
  return norm;
}

void Model::clip_grad_value(double limit, void* stream) {
  require_ready("ddp_model_clip_grad_value");
  require_no_made_step("ddp_model_clip_grad_value", kTooLate);
  if (!(limit > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_clip_grad_value: limit is %g; it must be above 0", limit);
  if (pass::OptimizerStage* const stage = pass_->stage(); stage != nullptr) stage->forget_norm();
  walk().change({device::Operation::Kind::kLimit, limit, "changing gradients"}, stream);
}

void Model::attach(const std::shared_ptr<pass::BlockUpdate>& update) {
  require_no_pass("ddp_optimizer_create");
  if (update->request().sharded && options_.uneven_inputs != 0)
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_optimizer_create: with shard = 1 every rank owns a part of every step, so none may join (uneven_inputs "
                "= 1); leave uneven_inputs 0, "
                "take part with ddp_model_skip_backward, or end all ranks together with ddp_model_set_last_pass");
  if (!attached_.expired())
    throw Error(DDP_ERROR_INVALID_STATE,
                "the model has an optimizer with shard or in_backward already; destroy it before another one is made");
  attached_ = update;
  if (pass_ != nullptr) pass_->attach(attached_);
}

pass::OptimizerStage* Model::stage_of(const pass::BlockUpdate& update) const noexcept {
  pass::OptimizerStage* const stage = pass_ == nullptr ? nullptr : pass_->stage();
  return stage != nullptr && &stage->update() == &update ? stage : nullptr;
}

bool Model::is_sharded() const noexcept {
  const std::shared_ptr<pass::BlockUpdate> update = attached_.lock();
  return pass_ != nullptr && update != nullptr && update->request().sharded;
}

void Model::run_step(const pass::BlockUpdate& update, void* stream) {
  pass::OptimizerStage* const stage = stage_of(update);
  if (stage == nullptr) throw make_error(DDP_ERROR_INTERNAL, "a step of an optimizer that is not attached");
  group::or_break(*group_, group::Part::kExchange, [&] {
    if (const std::optional<Error> failure = stage->run_step("ddp_optimizer_step", stage->is_sharded(), stream))
      throw Error(*failure);
  });
}

}  // namespace ddp::model
