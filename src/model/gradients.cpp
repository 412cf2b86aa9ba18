// SPDX-License-Identifier: Apache-2.0
#include "model/gradients.hpp"

#include <algorithm>
#include <cmath>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "group/consensus.hpp"
#include "group/gpu.hpp"
#include "model/model.hpp"
#include "model/optimizer_slot.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

constexpr const char* kTooLate =
    "so it would not see the change; use the optimizer's options max_norm, clip_value and ddp_optimizer_set_loss_scale, or "
    "in_backward = 0";

[[noreturn]] void refuse_to_move(const Parameter& parameter) {
  throw make_error(DDP_ERROR_INVALID_STATE,
                   "ddp_model_set_grad: the gradient of \"%s\" lies in ddp_group_alloc memory, where the other ranks "
                   "reach it; it cannot move",
                   parameter.name.c_str());
}

}  // namespace

std::vector<PlanItem> plan_items(const Parameters& table, const std::vector<int32_t>& present) {
  std::vector<PlanItem> items;
  for (const int32_t index : present) {
    const Tensor& value = table.parameter(index).value;
    items.push_back(PlanItem{value.count, value.dtype, value.is_on_gpu(), 0, index});
  }
  return items;
}

void Gradients::set_buckets(std::span<const int32_t> numbers) {
  model_.require_building("ddp_model_set_buckets");
  const std::vector<int32_t> present = table_.present();
  std::vector<int32_t> positions;
  for (const int32_t number : numbers) {
    const auto at = std::lower_bound(present.begin(), present.end(), number);
    const bool is_there = number < 0 || (at != present.end() && *at == number);
    if (!is_there)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "ddp_model_set_buckets: there is no parameter %d; the model has %zu parameters", number,
                       present.size());
    positions.push_back(number < 0 ? number : static_cast<int32_t>(at - present.begin()));
  }
  model_.buckets_ = read_given_buckets(positions, plan_items(table_, present));
}

void Gradients::take_back(int32_t index) {
  const Parameter& parameter = table_.parameter(index);
  if (parameter.awaits_grad() || parameter.grad.count == 0) return;
  if (model_.is_committed() && !model_.pass().set_address(index, parameter.stand_in)) refuse_to_move(parameter);
  table_.move_grad(index, parameter.stand_in, [](int32_t) { return false; });
  table_.await_grad(index);
}

void Gradients::set(int32_t index, const Tensor* grad) {
  model_.require_live("ddp_model_set_grad");
  Parameter& parameter = table_.parameter(index);
  const char* name = parameter.name.c_str();
  if (parameter.owned_grad)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_set_grad: libddp owns the gradient of \"%s\"; register it with a gradient of your own",
                     name);
  const auto is_marked = [this](int32_t each) {
    return model_.is_committed() && model_.pass().is_open() && model_.pass().is_marked(each);
  };
  if (is_marked(index))
    throw make_error(DDP_ERROR_INVALID_STATE, "ddp_model_set_grad: \"%s\" is marked already in this pass", name);
  if (grad == nullptr) return take_back(index);
  table_.require_like_grad(index, *grad);
  const std::string what = "the gradient of parameter \"" + parameter.name + "\"";
  Tensor moved = parameter.grad;
  moved.data = grad->data;
  const group::Gpu& gpu = model_.group().gpu();
  if (moved.is_on_gpu())
    gpu.bind(moved, what.c_str());
  else
    gpu.require_host(moved, what.c_str(), "its parameter lies in host memory, so the gradient does too");
  table_.require_free(index, moved);
  if (model_.is_committed() && !model_.pass().set_address(index, moved.data)) refuse_to_move(parameter);
  table_.move_grad(index, moved.data, is_marked);
}

void Gradients::zero(void* stream) {
  model_.require_ready("ddp_model_zero_grad");
  model_.pass().changed(pass::Change::kGradientsZeroed);
  spans_.clear();
  for (const Parameter& parameter : table_.parameters())
    if (!parameter.awaits_grad())
      spans_.add(device::of(parameter.grad), parameter.grad.dtype, parameter.grad.dtype, nullptr, parameter.grad.data,
                 parameter.grad.count);
  spans_.apply({device::Operation::Kind::kCopy, 1, "setting gradients to zero"}, {stream});
}

double Gradients::norm(double p, void* stream) {
  model_.require_ready("ddp_model_get_grad_norm");
  require_given("ddp_model_get_grad_norm");
  require_means("ddp_model_get_grad_norm");
  if (p != 1.0 && p != 2.0 && !(std::isinf(p) && p > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_get_grad_norm: p is %g; it is 1, 2 or INFINITY", p);
  for (int32_t index = 0; index < table_.parameter_count(); ++index)
    if (model_.pass().results().is_sliced(index) && !is_divided(index))
      throw Error(DDP_ERROR_INVALID_STATE,
                  "ddp_model_get_grad_norm: each rank has the mean in its own slice only, and the optimizer with shard that "
                  "made it so is destroyed; "
                  "make a pass first");
  device::of(table_).refuse_capture(stream, "ddp_model_get_grad_norm", "the host has to wait for the norm");
  const bootstrap::CallState::In inside(model_.optimizer_slot().is_sharded() ? &model_.group().calls() : nullptr,
                                        bootstrap::UserCall::kGetGradNorm, model_.number());
  if (std::isinf(p)) return largest_magnitude(stream);
  const ExactSum sum = sum_of_terms(
      static_cast<int32_t>(p), [](int32_t) { return true; }, stream);
  return p == 2.0 ? std::sqrt(sum.value()) : sum.value();
}

bool Gradients::is_divided(int32_t index) const noexcept {
  const parts::OptimizerStage* const stage = model_.passes().optimizers().stage_of(index);
  return stage != nullptr && stage->is_sharded();
}

template <class Which>
Norms& Gradients::norms_of(bool sliced, const Which& which) {
  norms_.clear();
  for (int32_t index = 0; index < table_.parameter_count(); ++index) {
    if (is_divided(index) != sliced || !which(index)) continue;
    const Tensor& grad = table_.parameter(index).grad;
    if (!sliced)
      norms_.add(grad);
    else
      for (const OwnedSpan& part : model_.passes().optimizers().stage_of(index)->owned(index))
        norms_.add(flat_part(grad, part.first, part.count));
  }
  return norms_;
}

double Gradients::largest_magnitude(void* stream) {
  const auto all = [](int32_t) { return true; };
  double most = norms_of(false, all).largest(stream);
  if (!model_.optimizer_slot().is_sharded()) return most;
  const double mine = norms_of(true, all).largest(stream);
  if (!std::isnan(most) && !(mine <= most)) most = mine;  // a NaN of one of them stays
  model_.group().all_reduce(flat_tensor(&most, DDP_F64, 1), DDP_MAX);
  return most;
}

/// Of gradients that each rank has whole the ranks add nothing up. The sums are exact, so the bits do not depend on who has
/// which part.
template <class Which>
ExactSum Gradients::sum_of_terms(int32_t p, const Which& which, void* stream) {
  ExactSum whole = norms_of(false, which).sum(p, stream);
  if (!model_.optimizer_slot().is_sharded()) return whole;
  ExactSum sliced = norms_of(true, which).sum(p, stream);
  join_sums(model_.group(), sliced);
  whole.join(sliced);
  return whole;
}

bool Gradients::are_finite_beyond(const ParameterSet& own, void* stream) {
  const auto which = [&](int32_t index) {
    return !own.has(index) && model_.pass().results().was_used(index) && model_.optimizer_slot().has(index);
  };
  return sum_of_terms(2, which, stream).all_finite();
}

void join_sums(group::Group& group, ExactSum& sum) {
  group.all_reduce(flat_tensor(sum.words().data(), DDP_I64, static_cast<int64_t>(ExactSum::kWords)), DDP_SUM);
}

void Gradients::scale(double factor, void* stream) {
  model_.require_ready("ddp_model_scale_grad");
  require_no_made_step("ddp_model_scale_grad", kTooLate);
  require_given("ddp_model_scale_grad");
  require_means("ddp_model_scale_grad");
  change({device::Operation::Kind::kScale, factor, "changing gradients"}, stream);
}

double Gradients::clip_norm(double max_norm, double p, void* stream) {
  if (!(max_norm > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_clip_grad_norm: max_norm is %g; it must be above 0", max_norm);
  model_.require_ready("ddp_model_clip_grad_norm");
  require_no_made_step("ddp_model_clip_grad_norm", kTooLate);
  require_means("ddp_model_clip_grad_norm");
  constexpr double kGuard = 1e-6;  // torch.nn.utils.clip_grad_norm_'s
  const bootstrap::CallState::In inside(model_.optimizer_slot().is_sharded() ? &model_.group().calls() : nullptr,
                                        bootstrap::UserCall::kClipGradNorm, model_.number());
  const double before = norm(p, stream);
  const double factor = max_norm / (before + kGuard);
  if (!(factor >= 1)) scale(factor, stream);  // a NaN is passed on to the gradients
  return before;
}

void Gradients::clip_value(double limit, void* stream) {
  model_.require_ready("ddp_model_clip_grad_value");
  require_no_made_step("ddp_model_clip_grad_value", kTooLate);
  require_given("ddp_model_clip_grad_value");
  require_means("ddp_model_clip_grad_value");
  if (!(limit > 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_clip_grad_value: limit is %g; it must be above 0", limit);
  change({device::Operation::Kind::kLimit, limit, "changing gradients"}, stream);
}

void Gradients::change(const device::Operation& operation, void* stream) {
  model_.pass().changed(pass::Change::kGradientsScaled);
  spans_.clear();
  for (const Parameter& parameter : table_.parameters()) spans_.add(parameter.grad);
  spans_.apply(operation, {stream});
}

void Gradients::take_reduced() {
  constexpr const char* kFunction = "ddp_model_mark_reduced";
  model_.require_ready(kFunction);
  require_no_made_step(kFunction, "with the gradients of that pass; call ddp_optimizer_step first");
  require_given(kFunction);
  require_means(kFunction);
  parts::ModelPass& pass = model_.passes();
  if (!pass.parts().is_first())
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: parts of a step are done and not reduced (DDP_PASS_PART); end the step with a DDP_PASS_REDUCE pass", kFunction);
  pass.changed(pass::Change::kGradientsZeroed);
  pass.results().take_reduced();
}

void Gradients::require_final(const char* function, int64_t used_in) const {
  require_given(function);
  using pass::Results;
  const Results& results = model_.pass().results();
  if (results.was_captured()) return;
  if (results.gradients() == Results::Gradients::kOwn && model_.group().size() > 1)
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: no pass has reduced these gradients over the %d ranks; compute them in a DDP_PASS_REDUCE pass "
        "(ddp_model_begin_backward, ddp_model_mark_ready, ddp_model_end_backward), in a DDP_PASS_LOCAL one for a step of "
        "this rank alone, or call ddp_model_mark_reduced if the program has reduced them itself",
        function, model_.group().size());
  if (results.gradients() == Results::Gradients::kAccumulated)
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the gradients are not reduced: the last pass was a DDP_PASS_ACCUMULATE; make a DDP_PASS_REDUCE pass "
        "first",
        function);
  if (results.gradients() == Results::Gradients::kVoid)
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the last pass failed or was abandoned, so the gradients are undefined; call ddp_model_zero_grad and "
        "make the pass again",
        function);
  if (used_in > 0 && used_in == results.final_passes())
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the last step has used these gradients already; make a pass first (or ddp_model_mark_reduced, if the "
        "program has reduced new ones itself)",
        function);
}

void Gradients::require_given(const char* function) const {
  const int32_t index = table_.first_awaited();
  if (index >= 0)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: parameter \"%s\" was added without a gradient and has none now; call ddp_model_set_grad first",
                     function, table_.parameter(index).name.c_str())
        .with({.parameters = {index}});
}

void Gradients::require_means(const char* function) const {
  if (model_.is_committed() && model_.pass().results().are_sums())
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the gradients are sums until ddp_optimizer_step divides them, because the optimizer was made with "
        "divide_in_step = 1; call it after the step of that optimizer, or make a pass first that leaves means: with "
        "divide_in_step = 0, or with what needs the gradient before the step (max_norm, nonfinite, a dynamic loss scale)",
        function);
}

void Gradients::require_no_made_step(const char* function, const char* why) const {
  const bool made = model_.is_committed() &&
                    model_.passes().optimizers().any([](const parts::OptimizerStage& each) { return each.step_is_made(); });
  if (made)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the optimizer with in_backward has made its step within the last pass, %s", function, why);
}

}  // namespace ddp::model
