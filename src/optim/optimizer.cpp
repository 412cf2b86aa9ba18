// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/callback.hpp"
#include "group/gpu.hpp"
#include "model/gradients.hpp"
#include "model/late_values.hpp"
#include "model/optimizer_slot.hpp"
#include "model/replicas.hpp"
#include "model/requirements.hpp"
#include "os/clock.hpp"
#include "trace/watch.hpp"

namespace ddp::optim {

Optimizer::Optimizer(std::shared_ptr<model::Model> model, ParamGroups schedule, const ddp_optimizer_options& options,
                     const char* rule)
    : model_(std::move(model)),
      progress_{std::move(schedule)},
      policy_(policy_of(options)),
      parameters_(this->model().optimizer_slot().choose(options.parameters, options.parameter_count, rule)),
      made_at_(passes()) {}

/// Of a model that builds again: before.
int64_t Optimizer::passes() const {
  return model().is_committed() ? model().pass().results().final_passes() : model().replicas().final_passes();
}

/// `updates`: an optimizer that would be changed updates within passes.
void Optimizer::require_outside_made_step(const char* function, bool updates) const {
  if (updates && model().is_committed() && model().pass().is_open())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: a pass is open in which the optimizer updates; set it before ddp_model_begin_backward", function);
  if (updates)
    model().gradients().require_no_made_step(
        function,
        "so that would hold for the next one only; call ddp_optimizer_step first, or set it before "
        "ddp_model_begin_backward");
}

const device::Device& Optimizer::home() const noexcept {
  const Parameters& table = model().table();
  if (table.device() == nullptr) return device::host();
  for (int32_t index = 0; index < table.parameter_count(); ++index)
    if (const Tensor& value = table.parameter(index).value; parameters_.has(index) && value.is_on_gpu())
      return device::of(value);
  return device::host();
}

/// A second step with the same gradients, on one rank alone perhaps, is a mistake that nothing else would show.
void Optimizer::require_new_gradients() const {
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  if (stage != nullptr && stage->late_values() != nullptr) stage->late_values()->wait_all();
  model::wait_values(model(), parameters_);
  model().values().require_whole("ddp_optimizer_step", model::Values::Late::kMayCome);
  model().values().require_own("ddp_optimizer_step", nullptr, model::Values::Late::kMayCome);
  model().gradients().require_final("ddp_optimizer_step", stepped_);
  const bool divides_now = stage != nullptr && stage->leaves_sums() && divides() &&
                           !needs_whole_gradient(policy_, progress_.loss_scale);  // a load may have changed that
  const pass::Results& results = model().pass().results();
  for (int32_t index = 0; index < model().table().parameter_count(); ++index) {
    if (!parameters_.has(index)) continue;
    if (!divides_now && results.is_sum(index)) model().gradients().require_means("ddp_optimizer_step");
    if (!policy_.shard && model().group().size() > 1 && results.is_sliced(index))
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "ddp_optimizer_step: each rank has the mean of \"%s\" in its own slice only, because of an optimizer "
                       "with shard that "
                       "had the parameter in the last pass; this optimizer needs the whole gradients: make a pass first",
                       model().table().parameter(index).name.c_str());
  }
  if (looks_beyond()) model().optimizer_slot().require_level(*this, stepped_);
}

bool Optimizer::looks_beyond() const noexcept {
  return progress_.loss_scale.is_dynamic() && model().optimizer_slot().count() > 1;
}

bool Optimizer::looks_beyond_slices() const noexcept { return looks_beyond() && model().optimizer_slot().is_sharded(); }

/// A step that needs no other rank is made even after their death, if it has its gradients. On a GPU the work that runs when
/// the group breaks is stopped, so it is unknown whether the gradients are complete.
void Optimizer::require_group() const {
  group::Group& group = model().group();
  if (steps_together()) return group.check_idle("ddp_optimizer_step");
  group.health().check_open();
  if (!group.health().has_fault()) return;
  const pass::Results& results = model().pass().results();
  const bool has_gradients = results.gradients() == pass::Results::Gradients::kFinal && results.final_passes() > stepped_;
  if (!has_gradients || model::has_gpu_tensors(model().table())) group.health().check_no_fault();
}

const Progress& Optimizer::progress() const {
  if (gpu_steps_ != nullptr && gpu_steps_->has_counts()) gpu_steps_->get(progress_);
  return progress_;
}

template <class Change>
void Optimizer::change_progress(const Change& change) {
  if (gpu_steps_ != nullptr) gpu_steps_->await();
  static_cast<void>(progress());
  change();
  keep_counts();
}

/// The host has counted: launches of a captured step continue from these counts.
void Optimizer::keep_counts() {
  if (gpu_steps_ != nullptr) gpu_steps_->put(progress_);
}

void Optimizer::set_rate(double rate) {
  require_outside_made_step("ddp_optimizer_set_rate", policy_.in_backward);
  progress_.groups.set_rate(rate);
  if (gpu_steps_ != nullptr) gpu_steps_->put_rate(rate);
}

void Optimizer::set_parameter_options(int32_t index, double weight_decay, double rate_scale) {
  require_outside_made_step("ddp_optimizer_set_parameter_options", policy_.in_backward);
  if (index >= 0 && index < model().table().parameter_count() && !parameters_.has(index))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_optimizer_set_parameter_options: %s has not the parameter \"%s\" (index %d)",
                     model().optimizer_slot().name_of(*this).c_str(), model().table().parameter(index).name.c_str(), index);
  model().gradients().require_means("ddp_optimizer_set_parameter_options");  // a frozen parameter's would stay a sum
  change_progress([&] { progress_.groups.set_parameter_options(model().table(), index, weight_decay, rate_scale); });
}

void Optimizer::set_loss_scale(const ddp_loss_scale_options& options) {
  require_outside_made_step("ddp_optimizer_set_loss_scale", policy_.in_backward || model().optimizer_slot().steps_in_pass());
  change_progress([&] { progress_.loss_scale = LossScale(options); });
  share_scale();
}

/// A model has one loss, so one loss scale. Each optimizer has a copy of it, and counts the same steps.
void Optimizer::share_scale() {
  if (model().optimizer_slot().count() < 2) return;
  Fields fields;
  progress_.loss_scale.add_fields(fields);
  for (const auto& state : model().replicas().kept_equal())
    if (state.get() != this) state->share(fields);
}

void Optimizer::share(const Fields& fields) {
  if (fields.count("loss_scale") == 0) return;
  const LossScale scale = LossScale::from_fields(fields);
  change_progress([&] { progress_.loss_scale = scale; });
}

parts::StepRequest Optimizer::request() const noexcept {
  return parts::StepRequest{policy_.shard,         policy_.in_backward, needs_whole_gradient(policy_, progress_.loss_scale),
                            takes_whole_tensors(), divides(),           policy_.divide_in_step,
                            policy_.late_values};
}

/// Once there is memory for state.
OwnedParts Optimizer::owned(int32_t index) const noexcept {
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  if (stage != nullptr) return stage->owned(index);
  return OwnedParts(&whole_[static_cast<size_t>(index)], parameters_.has(index) ? 1 : 0);
}

void Optimizer::allocate() {
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
void Optimizer::keep_sides() noexcept {
  const bool two = request().in_pass() && policy_.undo && !may_fail() && home().is_immediate();
  if (store() != nullptr) store()->keep_two_sides(two);
  masters_.keep_two_sides(two);
}

void Optimizer::prepare_blocks() {
  progress_.groups.reserve(model().table());
  allocate();
  prepare_rule();
  planned_ = false;
  if (!home().is_immediate()) prepare_gpu();
  shape_ = for_devices(plain_shape(policy_, progress_.loss_scale));
  undo_.saves = (request().in_pass() || may_fail()) && policy_.undo;
  if (undo_.saves) prepare_undo();
}

/// Where the ranks can take a step back together each keeps its slice alone; not when they may differ.
void Optimizer::prepare_undo() {
  allocate_undo();
  undo_.all.clear();
}

void Optimizer::allocate_undo() {
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  const bool sliced = stage != nullptr && stage->may_keep_slices() && !model().pass().results().went_alone();
  if (sliced != undo_.sliced) undo_.all = Undo();
  undo_.sliced = sliced;
  std::vector<OptimizerState*> stores;
  if (store() != nullptr) stores.push_back(store());
  if (policy_.master_weights) stores.push_back(&masters_.store());
  undo_.all.allocate(model().table(), stores, [&](int32_t index) { return sliced ? stage->kept(index) : owned(index); });
}

std::vector<parts::BlockUpdate::Beside> Optimizer::beside(int32_t index) {
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
bool Optimizer::takes_part(int32_t index) const noexcept {
  return parameters_.has(index) && model().pass().results().was_used(index) &&
         (planned_ || !progress_.groups.is_frozen(index));
}

Block Optimizer::block_of(int32_t index, int64_t first, int64_t count) const noexcept {
  const Parameter& parameter = model().table().parameter(index);
  const ddp_dtype dtype = parameter.value.dtype;
  const int64_t at = first * dtype_size(dtype);
  Block block{index, &parameter, first, count, dtype, parameter.value.data + at, parameter.grad.data + at, nullptr};
  if (policy_.master_weights && Masters::has(parameter))
    block.master = reinterpret_cast<float*>(masters_.store().at(parameter, index, 0, first));
  return block;
}

void Optimizer::update_block(int32_t index, int64_t first, int64_t count) noexcept {
  if (!may_fail()) return change(index, first, count);
  const NoCancellation whole;  // the thread may be the library's
  change(index, first, count);
}

void Optimizer::change(int32_t index, int64_t first, int64_t count) {
  if (count == 0 || (!planned_ && progress_.groups.is_frozen(index))) return;
  const Parameter& parameter = model().table().parameter(index);
  // What is saved of a block is in the caches when the rule reads it; a rule of the program gets the block as it is.
  const bool in_pieces = undo_.saves && !may_fail() && device::of(parameter.value).is_immediate();
  const int64_t step = in_pieces ? OptimizerState::kSmallBlock : count;
  for (int64_t at = 0; at < count; at += step) {
    const int64_t part = std::min(step, count - at);
    if (undo_.saves) undo_.all.start_block(parameter, index, first + at, part);
    update(block_of(index, first + at, part), shape_);
    if (undo_.saves) undo_.all.end_block();
  }
}

bool Optimizer::restore() noexcept {
  updates().clear();
  if (undo_.saves) undo_.all.restore(model().table());
  return undo_.saves;
}

void Optimizer::follow_loaded_values(const std::vector<bool>& loaded) {
  if (policy_.master_weights) masters_.begin_anew(model().table(), loaded, [&](int32_t index) { return owned(index); });
}

bool Optimizer::awaits_step() const noexcept {
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  const bool is_made = stage != nullptr && stage->step_is_made();
  const pass::Results& results = model().pass().results();
  return !is_made && results.gradients() == pass::Results::Gradients::kFinal && results.final_passes() > stepped_;
}

bool Optimizer::took_step() const noexcept {
  const pass::Results& results = model().pass().results();
  return results.gradients() == pass::Results::Gradients::kFinal && results.final_passes() > 0 && !awaits_step();
}

void Optimizer::lose_parts() noexcept {
  if (store() != nullptr) store()->clear();
  masters_.clear();
  undo_.all = Undo();
}

void Optimizer::flush(void* stream) {
  if (undo_.saves) undo_.all.flush(model().table(), stream);
  if (updates().empty()) return;
  // What stops kernels has stopped a planned step where it was decided.
  const ddp_gpu_stop stop = planned_ ? nullptr : model().group().gpu().stop_step_on(stream);
  updates().launch(home(), shape_, {stream, stop});
}

/// A frozen parameter is not updated, so its gradient would stay a sum.
bool Optimizer::divides() const noexcept {
  if (may_fail()) return false;
  for (int32_t index = 0; index < model().table().parameter_count(); ++index)
    if (parameters_.has(index) && !model().table().parameter(index).removed && progress_.groups.is_frozen(index))
      return false;
  return true;
}

void Optimizer::divide_and_flush(void* stream, double divisor) {
  shape_.divisor = divisor;
  const std::optional<Error> problem = try_to([&] { flush(stream); });
  shape_.divisor = 0;
  if (problem) throw Error(*problem);
}

void Optimizer::step(void* stream) {
  trace::Watch* const watch = model().group().calls().watch();
  const int64_t begin_ns = watch == nullptr ? 0 : os::now_ns();
  make_any_step(stream);
  if (watch != nullptr) watch->end_step(begin_ns);
}

void Optimizer::make_any_step(void* stream) {
  model().require_ready("ddp_optimizer_step");
  const bool captured = home().is_capturing(stream);
  if (captured) require_capturable();
  parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  if (stage != nullptr && stage->take_made_step()) {
    stepped_ = model().pass().results().final_passes();
    return;
  }
  require_group();
  require_new_gradients();
  const bootstrap::CallState::In inside(steps_together() ? &model().group().calls() : nullptr,
                                        bootstrap::UserCall::kOptimizerStep, model().number());
  prepare_blocks();
  undo_.saves = undo_.saves && may_fail();
  if (captured || is_planned())
    make_planned_step(stream);
  else
    make_step(stream);
  for (int32_t index = 0; index < model().table().parameter_count(); ++index)
    if (parameters_.has(index)) model().pass().results().divide(index);
  stepped_ = model().pass().results().final_passes();
}

void Optimizer::make_step(void* stream) {
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

void Optimizer::update_all(void* stream) {
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

void Optimizer::count_step() {
  for (int32_t i = 0; i < model().table().parameter_count(); ++i)
    if (takes_part(i)) progress_.groups.count_step_of(i);
  progress_.groups.count_step();
  if (undo_.saves) undo_.all.count();
  keep_counts();
}

void Optimizer::set_common(Common common) {
  change_progress([&] {
    common.progress.norm = progress_.norm;
    progress_ = std::move(common.progress);
    policy_ = common.policy;
  });
  made_at_ = passes();
  share_scale();
}

}  // namespace ddp::optim
