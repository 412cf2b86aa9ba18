// SPDX-License-Identifier: Apache-2.0
#include "model/model.hpp"

#include <algorithm>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "group/recoverable.hpp"
#include "parts/batch/batch_parts.hpp"

namespace ddp::model {
namespace {

/// If a rank waits to join: the present group ends, because a recovery admits that rank.
void let_others_join(group::Group& group) {
  const int32_t virtual_ranks = group.options().virtual_ranks;
  if (virtual_ranks != 0 && group.size() >= virtual_ranks) return;  // there is nothing for one more to do
  if (!group::Recoverable::of(group).is_joined_by_others()) return;
  group.health().abort(Error(DDP_ERROR_ABORTED, "a new rank waits to join the group: call ddp_group_recover"));
}

}  // namespace

void Model::require_building(const char* function) const {
  require_live(function);
  if (is_committed())
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model is committed; tensors are registered before ddp_model_commit",
                     function);
}

void Model::require_live(const char* function) const {
  if (closed_) throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model was destroyed", function);
}

void Model::require_ready(const char* function) const {
  require_no_pass(function);
  if (!is_committed())
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model is not committed; call ddp_model_commit first", function);
}

void Model::require_committed(const char* function) const {
  require_live(function);
  if (!is_committed())
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model is not committed; call ddp_model_commit first", function);
}

void Model::require_no_pass(const char* function) const {
  require_live(function);
  if (is_committed() && passes_.pass->is_open())
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: a backward pass is open; call ddp_model_end_backward first", function);
}

int32_t Model::add_parameter(std::string name, const Tensor& value, const Tensor* grad, Gradient comes) {
  if (comes == Gradient::kLater) return add_without_grad(std::move(name), value);
  require_building("ddp_model_add_parameter");
  if (!buckets_.empty())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_add_parameter: \"%s\" comes after ddp_model_set_buckets, which names all parameters",
                     name.c_str());
  return table_.add_parameter(std::move(name), value, grad);
}

/// The gradient has memory of its own meanwhile, to which nothing is written in passes that end well: it costs addresses,
/// and no path of a pass has to know of it.
int32_t Model::add_without_grad(std::string name, const Tensor& value) {
  if (value.is_on_gpu())
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "ddp_model_add_parameter_without_grad: parameter \"%s\" is on a GPU; give it a gradient, which "
                     "ddp_model_set_grad may replace",
                     name.c_str());
  os::LargeArray stand_in(static_cast<size_t>(std::max<int64_t>(value.bytes(), 1)), "a gradient that comes later");
  Tensor grad = value;
  grad.data = stand_in.data();
  memory_.stand_ins.push_back(std::move(stand_in));
  const int32_t index = on_error([&] { return add_parameter(std::move(name), value, &grad); },
                                 [this](const Error&) { memory_.stand_ins.pop_back(); });
  if (value.count > 0) table_.await_grad(index);
  return index;
}

int32_t Model::add_buffer(std::string name, const Tensor& value) {
  require_building("ddp_model_add_buffer");
  return table_.add_buffer(std::move(name), value);
}

void Model::set_hook(parts::Hook hook) {
  require_building("ddp_model_set_hook");
  if (options_.wire != cpu::ReduceRule::kAsItIs)
    throw Error(
        DDP_ERROR_INVALID_STATE,
        "ddp_model_set_hook: the model has the option wire, which is for the plain reduction; leave it 0 with a hook");
  hook_ = std::move(hook);
}

void Model::begin_backward(ddp_pass mode) {
  require_ready("ddp_model_begin_backward");
  if (mode < DDP_PASS_REDUCE || mode > DDP_PASS_PART)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_model_begin_backward: mode is %d; it is DDP_PASS_REDUCE (0), DDP_PASS_ACCUMULATE (1), "
                     "DDP_PASS_LOCAL (2) or DDP_PASS_PART (3)",
                     static_cast<int>(mode));
  passes_.batch->require(mode);
  values_.require_whole("ddp_model_begin_backward");
  const pass::Traits traits = passes_.pass->traits();
  if (mode == DDP_PASS_REDUCE && traits.steps) values_.require_own("ddp_model_begin_backward");
  if (mode == DDP_PASS_LOCAL && traits.shards)
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_model_begin_backward: DDP_PASS_LOCAL needs an optimizer that holds all of its state; with shard = 1 "
                "every rank has a part");
  const bool begins_step = (mode == DDP_PASS_REDUCE || mode == DDP_PASS_PART) && passes_.batch->is_first();
  if (begins_step && rejoin_ != nullptr) let_others_join(*group_);
  passes_.pass->begin(mode);
  mode_ = mode;
}

void Model::end_backward(void* stream) {
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kEndBackward);
  pass().end(stream);
  if (mode_ == DDP_PASS_REDUCE) after_reduction_(stream);
}

pass::Pass& Model::pass() const {
  if (!is_committed()) throw Error(DDP_ERROR_INVALID_STATE, "the model is not committed; call ddp_model_commit first");
  return *passes_.pass;
}

parts::ModelPass& Model::passes() const {
  static_cast<void>(pass());
  return *passes_.all;
}

}  // namespace ddp::model
