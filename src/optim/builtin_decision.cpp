// Steps that look at the whole gradient first.
#include <cmath>

#include "optim/builtin_optimizer.hpp"

namespace ddp::optim {

device::GradShape for_devices(const cpu::GradShape& shape) noexcept { return {shape.scale, shape.limit, nullptr}; }

template <class Norms>
void BuiltinOptimizer::add_owned_grad(int32_t index, Norms& norms) const {
  const Tensor& grad = model().table().parameter(index).grad;
  for (const OwnedSpan& part : owned(index)) norms.add(flat_part(grad, part.first, part.count));
}

bool BuiltinOptimizer::counts(int32_t index) const noexcept { return model().pass().results().was_used(index); }

bool BuiltinOptimizer::decide_step(void* stream) {
  const bool in_stream = decides_in_stream();
  if (in_stream && decision_ == nullptr) decision_ = std::make_unique<GpuDecision>(gpu::of(model().table()));
  norm_is_decided_ = in_stream;
  if (in_stream) {
    decision_->norms().clear();
    for (int32_t i = 0; i < model().table().parameter_count(); ++i)
      if (counts(i)) add_owned_grad(i, decision_->norms());
    shape_.gate = decision_->decide(loss_scale_.scale(), policy_.max_norm, stream);
    return true;
  }
  const Decision decision = look_at_gradients(stream);
  norm_ = decision.norm;
  if (decision.kind == Decision::Kind::kFail) report_nonfinite(stream);
  const bool good = decision.kind == Decision::Kind::kStep;
  loss_scale_.count(good);
  if (!good) ++skipped_;
  shape_ = for_devices(decision.shape);
  return good;
}

/// Is the length all that matters, and one device, which is not the host, knows it?
bool BuiltinOptimizer::decides_in_stream() const noexcept {
  if (device::of(model().table()).is_immediate() || policy_.shard || policy_.nonfinite != DDP_NONFINITE_KEEP ||
      loss_scale_.is_dynamic())
    return false;
  const Parameters& table = model().table();
  for (int32_t i = 0; i < table.parameter_count(); ++i)
    if (const Tensor& value = table.parameter(i).value; device::of(value).is_immediate() && value.count > 0 && counts(i))
      return false;
  return true;
}

Decision BuiltinOptimizer::look_at_gradients(void* stream) {
  const pass::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
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
  return decide(policy_, loss_scale_, std::sqrt(sum.value()), sum.all_finite());
}

bool BuiltinOptimizer::is_finite(int32_t index, void* stream) {
  norms_.clear();
  add_owned_grad(index, norms_);
  return std::isfinite(norms_.largest(stream));
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
