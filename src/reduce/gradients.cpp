// What a model does with its gradients between passes, and for the optimizer that takes part in them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/arrays.hpp"
#include "reduce/model.hpp"
#include "reduce/pass.hpp"

namespace ddp {

void Model::zero_grad(void*) {
  require_ready("ddp_model_zero_grad");
  for (const Parameter& parameter : table_.parameters())
    if (parameter.grad.bytes() > 0) std::memset(parameter.grad.data, 0, static_cast<size_t>(parameter.grad.bytes()));
}

double Model::grad_norm(double p, void*) const {
  require_ready("ddp_model_get_grad_norm");
  if (p != 1.0 && p != 2.0 && !(std::isinf(p) && p > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_get_grad_norm: p is %g; it is 1, 2 or INFINITY", p);
  const Fusion* const fusion = is_sharded() ? pass_->fusion() : nullptr;
  const auto part_of = [&](int32_t index) {
    Tensor part = table_.parameter(index).grad;
    if (fusion == nullptr) return part;
    const OwnedSpan span = fusion->owned(index);
    return flat_tensor(part.data + span.first * dtype_size(part.dtype), part.dtype, span.count);
  };
  if (std::isinf(p)) {
    double most = 0;
    for (int32_t index = 0; index < table_.parameter_count() && !std::isnan(most); ++index) {
      const Tensor part = part_of(index);
      const double here = cpu::largest_magnitude(part.dtype, part.data, part.count);
      most = std::isnan(here) ? here : std::max(most, here);
    }
    if (fusion != nullptr) group_->all_reduce(flat_tensor(&most, DDP_F64, 1), DDP_MAX);
    return most;
  }
  ExactSum sum;
  for (int32_t index = 0; index < table_.parameter_count(); ++index) {
    const Tensor part = part_of(index);
    cpu::add_norm_terms(part.dtype, part.data, part.count, p, sum);
  }
  if (fusion != nullptr) join_sums(*group_, sum);
  return p == 2.0 ? std::sqrt(sum.value()) : sum.value();
}

void join_sums(Group& group, ExactSum& sum) {
  group.all_reduce(flat_tensor(sum.words().data(), DDP_I64, static_cast<int64_t>(ExactSum::kWords)), DDP_SUM);
}

void Model::scale_grad(double factor, void*) {
  require_ready("ddp_model_scale_grad");
  if (Fusion* const fusion = pass_->fusion(); fusion != nullptr) fusion->forget_norm();
  for (const Parameter& parameter : table_.parameters())
    cpu::scale(parameter.grad.dtype, parameter.grad.data, parameter.grad.count, factor);
}

double Model::clip_grad_norm(double max_norm, double p, void* stream) {
  if (!(max_norm > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_clip_grad_norm: max_norm is %g; it must be above 0", max_norm);
  constexpr double kGuard = 1e-6;  // torch.nn.utils.clip_grad_norm_'s
  const double norm = grad_norm(p, stream);
  const double factor = max_norm / (norm + kGuard);
  if (!(factor >= 1)) scale_grad(factor, stream);  // a NaN goes on to the gradients
  return norm;
}

void Model::clip_grad_value(double limit, void*) {
  require_ready("ddp_model_clip_grad_value");
  if (!(limit > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_clip_grad_value: limit is %g; it must be above 0", limit);
  if (Fusion* const fusion = pass_->fusion(); fusion != nullptr) fusion->forget_norm();
  for (const Parameter& parameter : table_.parameters())
    cpu::limit(parameter.grad.dtype, parameter.grad.data, parameter.grad.count, limit);
}

void Model::attach(const std::shared_ptr<BlockUpdate>& update) {
  require_no_pass("ddp_optimizer_create");
  if (update->is_sharded() && options_.uneven_inputs != 0)
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_optimizer_create: with shard = 1 every rank owns a part of every step, so none may join (uneven_inputs = 1); leave uneven_inputs 0, "
                "take part with ddp_model_skip_backward, or end all ranks together with ddp_model_set_last_pass");
  if (!attached_.expired())
    throw Error(DDP_ERROR_INVALID_STATE,
                "the model has an optimizer with shard or in_backward already; destroy it before another one is made");
  attached_ = update;
  if (pass_ != nullptr) pass_->attach(attached_);
}

Fusion* Model::fusion_of(const BlockUpdate& update) const noexcept {
  Fusion* const fusion = pass_ == nullptr ? nullptr : pass_->fusion();
  return fusion != nullptr && &fusion->update() == &update ? fusion : nullptr;
}

bool Model::is_sharded() const noexcept {
  const std::shared_ptr<BlockUpdate> update = attached_.lock();
  return pass_ != nullptr && update != nullptr && update->is_sharded();
}

void Model::run_step(const BlockUpdate& update, void* stream) {
  Fusion* const fusion = fusion_of(update);
  if (fusion == nullptr) throw make_error(DDP_ERROR_INTERNAL, "a step of an optimizer that is not attached");
  try {
    fusion->run_step(stream);
  } catch (const Error& error) {
    group_->fail(error);
    throw;
  }
}

}  // namespace ddp
