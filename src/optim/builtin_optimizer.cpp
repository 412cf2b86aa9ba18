// SPDX-License-Identifier: Apache-2.0
#include "optim/builtin_optimizer.hpp"

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/callback.hpp"
#include "model/requirements.hpp"
#include "os/clock.hpp"
#include "trace/watch.hpp"

namespace ddp::optim {

void BuiltinOptimizer::require_outside_made_step(const char* function) const {
  if (policy_.in_backward && model().is_committed() && model().pass().is_open())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: a pass is open in which the optimizer updates; set it before ddp_model_begin_backward", function);
  if (policy_.in_backward)
    model().gradients().require_no_made_step(
        function,
        "so that would hold for the next one only; call ddp_optimizer_step first, or set it before "
        "ddp_model_begin_backward");
}

/// A second step with the same gradients, on one rank alone perhaps, is a mistake that nothing else would show.
void BuiltinOptimizer::require_new_gradients() const {
  model().values().require_whole("ddp_optimizer_step");
  model().values().require_own("ddp_optimizer_step");
  model().gradients().require_final("ddp_optimizer_step", stepped_);
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  const bool divides_now = stage != nullptr && stage->leaves_sums() && divides() &&
                           !needs_whole_gradient(policy_, progress_.loss_scale);  // a load may have changed that
  if (!divides_now) model().gradients().require_means("ddp_optimizer_step");
  if (!policy_.shard && model().group().size() > 1 &&
      (model().optimizer_slot().is_sharded() || model().pass().results().are_sliced()))
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_optimizer_step: each rank has the mean in its own slice only, because of an optimizer with shard; this "
                "optimizer needs the "
                "whole gradients: give it shard = 1, or none of the model's optimizers");
}

/// A step that needs no other rank is made even after their death, if it has its gradients. On a GPU the work that runs when
/// the group breaks is stopped, so it is unknown whether the gradients are complete.
void BuiltinOptimizer::require_group() const {
  group::Group& group = model().group();
  if (policy_.shard) return group.check_idle("ddp_optimizer_step");
  group.health().check_open();
  if (!group.health().has_fault()) return;
  const pass::Results& results = model().pass().results();
  const bool has_gradients = results.gradients() == pass::Results::Gradients::kFinal && results.final_passes() > stepped_;
  if (!has_gradients || model::has_gpu_tensors(model().table())) group.health().check_no_fault();
}

const Progress& BuiltinOptimizer::progress() const {
  if (gpu_steps_ != nullptr && gpu_steps_->has_counts()) gpu_steps_->get(progress_);
  return progress_;
}

template <class Change>
void BuiltinOptimizer::change_progress(const Change& change) {
  if (gpu_steps_ != nullptr) gpu_steps_->await();
  static_cast<void>(progress());
  change();
  keep_counts();
}

/// The host has counted: launches of a captured step continue from these counts.
void BuiltinOptimizer::keep_counts() {
  if (gpu_steps_ != nullptr) gpu_steps_->put(progress_);
}

void BuiltinOptimizer::set_rate(double rate) {
  require_outside_made_step("ddp_optimizer_set_rate");
  progress_.groups.set_rate(rate);
  if (gpu_steps_ != nullptr) gpu_steps_->put_rate(rate);
}

void BuiltinOptimizer::set_group(int32_t index, double weight_decay, double rate_scale) {
  require_outside_made_step("ddp_optimizer_set_group");
  model().gradients().require_means("ddp_optimizer_set_group");  // a frozen parameter's would stay a sum
  change_progress([&] { progress_.groups.set_group(model().table(), index, weight_decay, rate_scale); });
}

void BuiltinOptimizer::set_loss_scale(const ddp_loss_scale_options& options) {
  require_outside_made_step("ddp_optimizer_set_loss_scale");
  change_progress([&] { progress_.loss_scale = LossScale(options); });
}

parts::StepRequest BuiltinOptimizer::request() const noexcept {
  return parts::StepRequest{policy_.shard,         policy_.in_backward, needs_whole_gradient(policy_, progress_.loss_scale),
                            takes_whole_tensors(), divides(),           policy_.divide_in_step};
}

/// Once there is memory for state.
OwnedParts BuiltinOptimizer::owned(int32_t index) const noexcept {
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  return stage != nullptr ? stage->owned(index) : OwnedParts(&whole_[static_cast<size_t>(index)], 1);
}

void BuiltinOptimizer::allocate() {
  const Parameters& table = model().table();
  keep_sides();
  if (policy_.shard && model().optimizer_slot().stage_of(*this) == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE, "a sharded optimizer has its state after ddp_model_commit only; call it first");
  whole_.reserve(static_cast<size_t>(table.parameter_count()));
  for (auto index = static_cast<int32_t>(whole_.size()); index < table.parameter_count(); ++index)
    whole_.push_back(OwnedSpan{index, 0, table.parameter(index).value.count});
  const auto part = [&](int32_t index) { return owned(index); };
  if (store() != nullptr) store()->allocate(table, part);
  if (policy_.master_weights) masters_.allocate(table, part);
}

/// A step that a pass makes leaves state as it was on one side, so that nothing of it has to be saved. A rule of the program
/// changes a block too large for the caches, which costs the same as saving it.
void BuiltinOptimizer::keep_sides() noexcept {
  const bool two = request().in_pass() && policy_.undo && !may_fail() && device::of(model().table()).is_immediate();
  if (store() != nullptr) store()->keep_two_sides(two);
  masters_.keep_two_sides(two);
}

void BuiltinOptimizer::prepare_blocks() {
  progress_.groups.reserve(model().table());
  allocate();
  prepare_rule();
  planned_ = false;
  if (!device::of(model().table()).is_immediate()) prepare_gpu();
  shape_ = for_devices(plain_shape(policy_, progress_.loss_scale));
  undoes_ = (request().in_pass() || may_fail()) && policy_.undo;
  if (undoes_) prepare_undo();
}

/// Where the ranks can take a step back together each keeps its slice alone; not when they may differ.
void BuiltinOptimizer::prepare_undo() {
  allocate_undo();
  undo_.all.clear();
}

void BuiltinOptimizer::allocate_undo() {
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  const bool sliced = stage != nullptr && stage->may_keep_slices() && !model().pass().results().went_alone();
  if (sliced != undo_.sliced) undo_.all = Undo();
  undo_.sliced = sliced;
  std::vector<OptimizerState*> stores;
  if (store() != nullptr) stores.push_back(store());
  if (policy_.master_weights) stores.push_back(&masters_.store());
  undo_.all.allocate(model().table(), stores, [&](int32_t index) { return sliced ? stage->kept(index) : owned(index); });
}

std::vector<parts::BlockUpdate::Beside> BuiltinOptimizer::beside(int32_t index) {
  const Parameter& parameter = model().table().parameter(index);
  std::vector<Beside> arrays;
  const auto add = [&](const OptimizerState& from) {
    for (size_t k = 0; k < from.arrays(); ++k)
      arrays.push_back(Beside{from.data(index, k), cpu::moment_dtype(parameter.value.dtype)});
  };
  if (store() != nullptr) add(*store());
  if (policy_.master_weights && Masters::has(parameter)) add(masters_.store());
  return arrays;
}

/// A planned step continues from the counts of the GPU, which the host does not know.
bool BuiltinOptimizer::takes_part(int32_t index) const noexcept {
  return model().pass().results().was_used(index) && (planned_ || !progress_.groups.is_frozen(index));
}

Block BuiltinOptimizer::block_of(int32_t index, int64_t first, int64_t count) const noexcept {
  const Parameter& parameter = model().table().parameter(index);
  const ddp_dtype dtype = parameter.value.dtype;
  const int64_t at = first * dtype_size(dtype);
  Block block{index, &parameter, first, count, dtype, parameter.value.data + at, parameter.grad.data + at, nullptr};
  if (policy_.master_weights && Masters::has(parameter))
    block.master = reinterpret_cast<float*>(masters_.store().at(parameter, index, 0, first));
  return block;
}

void BuiltinOptimizer::update_block(int32_t index, int64_t first, int64_t count) noexcept {
  if (!may_fail()) return change(index, first, count);
  const NoCancellation whole;  // the thread may be the library's
  change(index, first, count);
}

void BuiltinOptimizer::change(int32_t index, int64_t first, int64_t count) {
  if (count == 0 || (!planned_ && progress_.groups.is_frozen(index))) return;
  const Parameter& parameter = model().table().parameter(index);
  // What is saved of a block is in the caches when the rule reads it; a rule of the program gets the block as it is.
  const bool in_pieces = undoes_ && !may_fail() && device::of(parameter.value).is_immediate();
  const int64_t step = in_pieces ? OptimizerState::kSmallBlock : count;
  for (int64_t at = 0; at < count; at += step) {
    const int64_t part = std::min(step, count - at);
    if (undoes_) undo_.all.start_block(parameter, index, first + at, part);
    update(block_of(index, first + at, part), shape_);
    if (undoes_) undo_.all.end_block();
  }
}

bool BuiltinOptimizer::restore() noexcept {
  updates().clear();
  if (undoes_) undo_.all.restore(model().table());
  return undoes_;
}

void BuiltinOptimizer::follow_loaded_values(const std::vector<bool>& loaded) {
  if (policy_.master_weights) masters_.begin_anew(model().table(), loaded, [&](int32_t index) { return owned(index); });
}

bool BuiltinOptimizer::awaits_step() const noexcept {
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  const bool is_made = stage != nullptr && stage->step_is_made();
  const pass::Results& results = model().pass().results();
  return !is_made && results.gradients() == pass::Results::Gradients::kFinal && results.final_passes() > stepped_;
}

void BuiltinOptimizer::lose_parts() noexcept {
  if (store() != nullptr) store()->clear();
  masters_.clear();
  undo_.all = Undo();
}

void BuiltinOptimizer::flush(void* stream) {
  if (undoes_) undo_.all.flush(model().table(), stream);
  if (updates().empty()) return;
  // What stops kernels has stopped a planned step where it was decided.
  const ddp_gpu_stop stop = planned_ ? nullptr : model().group().gpu().stop_step_on(stream);
  updates().launch(device::of(model().table()), shape_, {stream, stop});
}

/// A frozen parameter is not updated, so its gradient would stay a sum.
bool BuiltinOptimizer::divides() const noexcept {
  if (may_fail()) return false;
  for (int32_t index = 0; index < model().table().parameter_count(); ++index)
    if (progress_.groups.is_frozen(index)) return false;
  return true;
}

void BuiltinOptimizer::divide_and_flush(void* stream, double divisor) {
  shape_.divisor = divisor;
  const std::optional<Error> problem = try_to([&] { flush(stream); });
  shape_.divisor = 0;
  if (problem) throw Error(*problem);
}

void BuiltinOptimizer::step(void* stream) {
  trace::Watch* const watch = model().group().calls().watch();
  const int64_t begin_ns = watch == nullptr ? 0 : os::now_ns();
  make_any_step(stream);
  if (watch != nullptr) watch->end_step(begin_ns);
}

void BuiltinOptimizer::make_any_step(void* stream) {
  model().require_ready("ddp_optimizer_step");
  const bool captured = device::of(model().table()).is_capturing(stream);
  if (captured) require_capturable();
  parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  if (stage != nullptr && stage->take_made_step()) {
    stepped_ = model().pass().results().final_passes();
    return;
  }
  require_group();
  require_new_gradients();
  const bootstrap::CallState::In inside(policy_.shard ? &model().group().calls() : nullptr,
                                        bootstrap::UserCall::kOptimizerStep, model().number());
  prepare_blocks();
  undoes_ = undoes_ && may_fail();
  if (captured || is_planned())
    make_planned_step(stream);
  else
    make_step(stream);
  model().pass().results().divide();
  stepped_ = model().pass().results().final_passes();
}

void BuiltinOptimizer::make_step(void* stream) {
  const LossScale before = progress_.loss_scale;
  if (needs_whole_gradient(policy_, progress_.loss_scale) && !decide_step(stream)) return keep_counts();
  const std::optional<Error> failure = try_to([&] {
    update_all(stream);
    count_step();
  });
  if (!failure) return;
  progress_.loss_scale = before;
  throw Error(*failure);
}

void BuiltinOptimizer::update_all(void* stream) {
  if (model().optimizer_slot().stage_of(*this) != nullptr) return model().optimizer_slot().run_step(*this, stream);
  for (int32_t i = 0; i < model().table().parameter_count(); ++i)
    if (takes_part(i)) change(i, 0, model().table().parameter(i).value.count);
  flush(stream);
  const std::optional<Error> failure = take_failure();
  if (!failure) return;
  if (!restore()) tear();
  flush(stream);
  throw Error(failure->status(), "ddp_optimizer_step: " + failure->text());
}

void BuiltinOptimizer::count_step() {
  for (int32_t i = 0; i < model().table().parameter_count(); ++i)
    if (takes_part(i)) progress_.groups.count_step_of(i);
  progress_.groups.count_step();
  if (undoes_) undo_.all.count();
  keep_counts();
}

Fields BuiltinOptimizer::common_fields() const {
  Fields fields = progress().groups.fields(model().table());
  fields["max_norm"] = number_text(policy_.max_norm);
  fields["clip_value"] = number_text(policy_.clip_value);
  fields["nonfinite"] = std::to_string(static_cast<int>(policy_.nonfinite));
  fields["skipped"] = std::to_string(progress_.skipped);
  progress_.loss_scale.add_fields(fields);
  return fields;
}

BuiltinOptimizer::Common BuiltinOptimizer::read_common(const Fields& fields) const {
  Common common{
      {ParamGroups::from_fields(fields, model().table()), LossScale::from_fields(fields), read_count(fields, "skipped")},
      policy_};
  common.policy.max_norm = read_number(fields, "max_norm");
  common.policy.clip_value = read_number(fields, "clip_value");
  common.policy.nonfinite = static_cast<ddp_nonfinite>(read_count(fields, "nonfinite") & 0x7f);
  check_policy(common.policy, "the checkpoint", DDP_ERROR_IO);
  return common;
}

void BuiltinOptimizer::set_common(Common common) {
  change_progress([&] {
    common.progress.norm = progress_.norm;
    progress_ = std::move(common.progress);
    policy_ = common.policy;
  });
}

void BuiltinOptimizer::add_tensor(std::vector<model::StateTensor>& tensors, const OptimizerState& from, int32_t index,
                                  size_t array, const std::string& field) const {
  const Parameters& table = model().table();
  model::StateTensor made{table.parameter(index).name + "." + field, from.tensor(table, index, array), {}};
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  for (int32_t rank = 0; policy_.shard && stage != nullptr && rank < model().group().size(); ++rank) {
    const OwnedParts theirs = stage->ownership().parts(rank, index);
    made.parts.emplace_back(theirs.begin(), theirs.end());
  }
  tensors.push_back(std::move(made));
}

std::vector<model::StateTensor> BuiltinOptimizer::named_tensors(const std::vector<std::string>& fields) {
  allocate();
  std::vector<model::StateTensor> tensors;
  for (int32_t i = 0; i < model().table().parameter_count(); ++i) {
    for (size_t k = 0; store() != nullptr && k < store()->arrays() && k < fields.size(); ++k)
      add_tensor(tensors, *store(), i, k, fields[k]);
    if (policy_.master_weights && Masters::has(model().table().parameter(i)))
      add_tensor(tensors, masters_.store(), i, 0, "master");
  }
  return tensors;
}

}  // namespace ddp::optim
