// Steps that look at the whole gradient first.
#include <cmath>

#include "device/cpu/arrays.hpp"
#include "optim/builtin_optimizer.hpp"

namespace ddp::optim {

Tensor BuiltinOptimizer::owned_grad(int32_t index) const noexcept {
  const OwnedSpan part = owned(index);
  return flat_part(model().table().parameter(index).grad, part.first, part.count);
}

bool BuiltinOptimizer::counts(int32_t index) const noexcept { return !model().has_reduced() || model().was_used(index); }

bool BuiltinOptimizer::decide_step(void* stream) {
  const gpu::Device* const device = model().table().gpu();
  if (device != nullptr && decision_ == nullptr) decision_ = std::make_unique<GpuDecision>(*device);
  norm_is_on_gpu_ = decides_on_gpu();
  if (norm_is_on_gpu_) {
    note_gradients();
    gate_ = decision_->decide(loss_scale_.scale(), policy_.max_norm, stream);
    return true;
  }
  const Decision decision = look_at_gradients(stream);
  norm_ = decision.norm;
  if (decision.kind == Decision::Kind::kFail) report_nonfinite(stream);
  const bool good = decision.kind == Decision::Kind::kStep;
  loss_scale_.count(good);
  if (!good) ++skipped_;
  shape_ = decision.shape;
  return good;
}

/// Is the length all that matters, and the device knows it?
bool BuiltinOptimizer::decides_on_gpu() const noexcept {
  if (decision_ == nullptr || policy_.shard || policy_.nonfinite != DDP_NONFINITE_KEEP || loss_scale_.is_dynamic())
    return false;
  const Parameters& table = model().table();
  for (int32_t i = 0; i < table.parameter_count(); ++i)
    if (!table.parameter(i).value.is_on_gpu() && table.parameter(i).value.count > 0 && counts(i)) return false;
  return true;
}

void BuiltinOptimizer::note_gradients() {
  for (int32_t i = 0; i < model().table().parameter_count(); ++i)
    if (model().table().parameter(i).value.is_on_gpu() && counts(i)) decision_->norms().add(owned_grad(i));
}

Decision BuiltinOptimizer::look_at_gradients(void* stream) {
  const Parameters& table = model().table();
  if (decision_ != nullptr) {
    note_gradients();
    decision_->norms().start_sum(2, stream);
  }
  const auto counts_here = [&](int32_t index) { return counts(index) && !table.parameter(index).value.is_on_gpu(); };
  ExactSum sum;
  if (const pass::OptimizerStage* const stage = model().stage_of(*this); stage != nullptr) {
    stage->add_square_terms(sum, counts_here);
  } else {
    for (int32_t i = 0; i < table.parameter_count(); ++i) {
      const Tensor& grad = table.parameter(i).grad;
      if (counts_here(i)) cpu::add_norm_terms(grad.dtype, grad.data, grad.count, 2, sum);
    }
  }
  if (decision_ != nullptr) sum.join(decision_->norms().finish_sum(stream));
  if (policy_.shard) model::join_sums(model().group(), sum);
  return decide(policy_, loss_scale_, std::sqrt(sum.value()), sum.all_finite());
}

bool BuiltinOptimizer::is_finite(int32_t index, void* stream) {
  const Tensor grad = owned_grad(index);
  if (!grad.is_on_gpu()) return cpu::count_nonfinite(grad.dtype, grad.data, grad.count) == 0;
  decision_->norms().add(grad);
  return std::isfinite(decision_->norms().largest(stream));
}

/// Every rank comes here; each names what it has seen.
void BuiltinOptimizer::report_nonfinite(void* stream) {
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
