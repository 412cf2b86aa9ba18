// What a model does with its gradients between passes, and for the optimizer that takes part in them.
#include <cmath>

#include "bootstrap/control/call_state.hpp"
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

/// What this rank knows of a gradient: all of it (NULL), or what it owns.
Tensor Model::grad_part(int32_t index, const Ownership* ownership) const {
  const Tensor& grad = table_.parameter(index).grad;
  const OwnedSpan span = ownership != nullptr ? ownership->part(group_->rank(), index) : OwnedSpan{0, 0, grad.count};
  return flat_part(grad, span.first, span.count);
}

double Model::largest_gradient(void* stream) {
  const Ownership* const slices = is_sharded() ? &pass_->stage()->ownership() : nullptr;
  double most = walk().norms([&](int32_t index) { return grad_part(index, slices); }).largest(stream);
  if (slices != nullptr) group_->all_reduce(flat_tensor(&most, DDP_F64, 1), DDP_MAX);
  return most;
}

ExactSum Model::sum_of_gradients(int32_t p, void* stream) {
  const Ownership* const slices = is_sharded() ? &pass_->stage()->ownership() : nullptr;
  ExactSum sum = walk().norms([&](int32_t index) { return grad_part(index, slices); }).sum(p, stream);
  if (slices != nullptr) join_sums(*group_, sum);
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
