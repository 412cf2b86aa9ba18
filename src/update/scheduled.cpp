#include "update/scheduled.hpp"

#include <cmath>

#include "device/cpu/arrays.hpp"

namespace ddp {

void ScheduledOptimizer::require_outside_made_step(const char* function) const {
  if (policy_.in_backward && model().phase() == Model::Phase::kOpen)
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: a pass is open in which the optimizer updates; set it before ddp_model_begin_backward", function);
}

void ScheduledOptimizer::set_rate(double rate) {
  require_outside_made_step("ddp_optimizer_set_rate");
  schedule_.set_rate(rate);
}

void ScheduledOptimizer::set_group(int32_t index, double weight_decay, double rate_scale) {
  require_outside_made_step("ddp_optimizer_set_group");
  schedule_.set_group(model().table(), index, weight_decay, rate_scale);
}

void ScheduledOptimizer::set_loss_scale(const ddp_loss_scale_options& options) {
  require_outside_made_step("ddp_optimizer_set_loss_scale");
  loss_scale_ = LossScale(options);
}

bool ScheduledOptimizer::is_immediate() const noexcept { return policy_.in_backward && !needs_whole_gradient(policy_, loss_scale_); }

OwnedSpan ScheduledOptimizer::owned(int32_t index) const noexcept {
  const Fusion* const fusion = model().fusion_of(*this);
  return fusion != nullptr ? fusion->owned(index) : OwnedSpan{0, 0, model().table().parameter(index).value.count};
}

void ScheduledOptimizer::allocate() {
  const Table& table = model().table();
  if (policy_.shard && model().fusion_of(*this) == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE, "a sharded optimizer has its state after ddp_model_commit only; call it first");
  const auto part = [&](int32_t index) { return owned(index); };
  if (store() != nullptr) store()->allocate(table, part);
  if (policy_.master_weights) masters_.allocate(table, part);
}

void ScheduledOptimizer::prepare_blocks() {
  schedule_.reserve(model().table());
  allocate();
  shape_ = plain_shape(policy_, loss_scale_);
  undoes_ = is_immediate() && policy_.undo;
  if (!undoes_) return;
  std::vector<const Store*> stores;
  if (store() != nullptr) stores.push_back(store());
  if (policy_.master_weights) stores.push_back(&masters_.store());
  undo_.allocate(model().table(), stores, [&](int32_t index) { return owned(index); });
  undo_.clear();
}

bool ScheduledOptimizer::takes_part(int32_t index) const noexcept {
  return (!model().has_reduced() || model().was_used(index)) && !schedule_.is_frozen(index);
}

void ScheduledOptimizer::update_block(int32_t index, int64_t first, int64_t count) noexcept {
  if (schedule_.is_frozen(index) || count == 0) return;
  const Parameter& parameter = model().table().parameter(index);
  if (undoes_) undo_.save(parameter, index, first, count);
  if (policy_.master_weights && Masters::has(parameter)) {
    masters_.update(parameter, index, first, count, [&](float* value, const float* grad, int64_t at, int64_t n) {
      update(Block{index, parameter, at, n, DDP_F32, value, grad}, shape_);
    });
    return;
  }
  const int64_t size = dtype_size(parameter.value.dtype);
  update(Block{index, parameter, first, count, parameter.value.dtype, parameter.value.data + first * size, parameter.grad.data + first * size},
         shape_);
}

void ScheduledOptimizer::restore() noexcept {
  if (undoes_) undo_.restore(model().table());
}

void ScheduledOptimizer::step(void* stream) {
  model().require_ready("ddp_optimizer_step");
  Fusion* const fusion = model().fusion_of(*this);
  if (fusion != nullptr && fusion->take_made_step()) return count_all();
  if (policy_.shard)
    model().group().check_idle("ddp_optimizer_step");
  else
    model().group().check_no_fault();
  prepare_blocks();
  undoes_ = false;
  if (wants_norm()) {
    const Decision decision = look_at_gradients();
    norm_ = decision.norm;
    if (decision.kind == Decision::Kind::kFail) report_nonfinite();
    const bool good = decision.kind == Decision::Kind::kStep;
    loss_scale_.count(good);
    if (!good) {
      ++skipped_;
      return;
    }
    shape_ = decision.shape;
  }
  update_all(stream);
  count_all();
}

void ScheduledOptimizer::update_all(void* stream) {
  if (model().fusion_of(*this) != nullptr) return model().run_step(*this, stream);
  const Table& table = model().table();
  for (int32_t i = 0; i < table.parameter_count(); ++i) {
    if (!takes_part(i)) continue;
    const Parameter& parameter = table.parameter(i);
    if (policy_.master_weights && Masters::has(parameter))
      update_block(i, 0, parameter.value.count);
    else
      update(Block{i, parameter, 0, parameter.value.count, parameter.value.dtype, parameter.value.data, parameter.grad.data}, shape_);
    schedule_.count_step_of(i);
  }
}

void ScheduledOptimizer::count_all() noexcept {
  if (model().fusion_of(*this) != nullptr)
    for (int32_t i = 0; i < model().table().parameter_count(); ++i)
      if (takes_part(i)) schedule_.count_step_of(i);
  schedule_.count_step();
}

Decision ScheduledOptimizer::look_at_gradients() {
  const auto counts = [&](int32_t index) { return !model().has_reduced() || model().was_used(index); };
  ExactSum sum;
  if (const Fusion* const fusion = model().fusion_of(*this); fusion != nullptr) {
    fusion->add_square_terms(sum, counts);
  } else {
    for (int32_t i = 0; i < model().table().parameter_count(); ++i) {
      const Tensor& grad = model().table().parameter(i).grad;
      if (counts(i)) cpu::add_norm_terms(grad.dtype, grad.data, grad.count, 2, sum);
    }
  }
  if (policy_.shard) join_sums(model().group(), sum);
  return decide(policy_, loss_scale_, std::sqrt(sum.value()), sum.all_finite());
}

/// Every rank comes here; each names what it has seen.
void ScheduledOptimizer::report_nonfinite() {
  const Table& table = model().table();
  std::string mine;
  for (int32_t i = 0; i < table.parameter_count() && mine.empty(); ++i) {
    const Tensor& grad = table.parameter(i).grad;
    const OwnedSpan part = owned(i);
    const bool used = !model().has_reduced() || model().was_used(i);
    if (used && cpu::count_nonfinite(grad.dtype, grad.data + part.first * dtype_size(grad.dtype), part.count) > 0) mine = table.parameter(i).name;
  }
  if (policy_.shard)
    for (const std::string& theirs : model().group().gather("gradients that are not finite", mine))
      if (mine.empty() && !theirs.empty()) mine = theirs;
  throw Error(DDP_ERROR_INVALID_STATE, "ddp_optimizer_step: the gradient of parameter \"" + mine +
                                           "\" has infinite or NaN elements, so no parameter was changed; lower the learning rate or the loss "
                                           "scale, or set nonfinite = DDP_NONFINITE_SKIP");
}

Fields ScheduledOptimizer::common_fields() const {
  Fields fields = schedule_.fields(model().table());
  fields["max_norm"] = number_text(policy_.max_norm);
  fields["clip_value"] = number_text(policy_.clip_value);
  fields["nonfinite"] = std::to_string(static_cast<int>(policy_.nonfinite));
  fields["skipped"] = std::to_string(skipped_);
  loss_scale_.add_fields(fields);
  return fields;
}

ScheduledOptimizer::Common ScheduledOptimizer::read_common(const Fields& fields) const {
  Common common{Schedule::from_fields(fields, model().table()), policy_, LossScale::from_fields(fields), read_count(fields, "skipped")};
  common.policy.max_norm = read_number(fields, "max_norm");
  common.policy.clip_value = read_number(fields, "clip_value");
  common.policy.nonfinite = static_cast<ddp_nonfinite>(read_count(fields, "nonfinite") & 0x7f);
  check_policy(common.policy, "the checkpoint", DDP_ERROR_IO);
  return common;
}

void ScheduledOptimizer::set_common(Common common) noexcept {
  schedule_ = std::move(common.schedule);
  policy_ = common.policy;
  loss_scale_ = common.loss_scale;
  skipped_ = common.skipped;
}

void ScheduledOptimizer::add_tensor(std::vector<StateTensor>& tensors, const Store& from, int32_t index, size_t array, const std::string& field) const {
  const Table& table = model().table();
  StateTensor made{table.parameter(index).name + "." + field, from.tensor(table, index, array), {}};
  const Fusion* const fusion = model().fusion_of(*this);
  if (policy_.shard && fusion != nullptr)
    for (int32_t rank = 0; rank < model().group().size(); ++rank) made.parts.push_back(fusion->owned_by(index, rank));
  tensors.push_back(std::move(made));
}

std::vector<StateTensor> ScheduledOptimizer::named_tensors(const std::vector<std::string>& fields) {
  allocate();
  std::vector<StateTensor> tensors;
  for (int32_t i = 0; i < model().table().parameter_count(); ++i) {
    for (size_t k = 0; store() != nullptr && k < store()->arrays() && k < fields.size(); ++k) add_tensor(tensors, *store(), i, k, fields[k]);
    if (policy_.master_weights && Masters::has(model().table().parameter(i))) add_tensor(tensors, masters_.store(), i, 0, "master");
  }
  return tensors;
}

}  // namespace ddp
