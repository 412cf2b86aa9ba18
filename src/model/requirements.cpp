// What must hold before a call, so that none does nothing, or half of something, without a word.
#include "model/model.hpp"
#include "pass/pass.hpp"

namespace ddp::model {

void Model::require_final_gradients(const char* function, int64_t used_in) const {
  using Gradients = pass::Results::Gradients;
  if (pass_ == nullptr || pass_->results().was_captured()) return;
  if (pass_->results().gradients() == Gradients::kAccumulated)
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the gradients are not reduced: the last pass was a DDP_PASS_ACCUMULATE; make a DDP_PASS_REDUCE pass "
        "first",
        function);
  if (pass_->results().gradients() == Gradients::kVoid)
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the last pass failed or was abandoned, so the gradients are undefined; call ddp_model_zero_grad and "
        "make the pass again",
        function);
  if (used_in > 0 && used_in == pass_->results().final_passes())
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the last step has used these gradients already; make a pass first (DDP_PASS_LOCAL for gradients that "
        "are equal on all ranks without a reduction)",
        function);
}

void Model::require_whole(const char* function) const {
  const bool optimizer = torn_.optimizer || (pass_ != nullptr && pass_->results().is_torn());
  if (torn_.parameters || optimizer)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: a pass or a load that failed has changed only a part of the %s; load a checkpoint%s", function,
                     optimizer ? "parameters and of the optimizer's state" : "parameters",
                     optimizer ? " with the optimizer" : "");
}

void Model::require_no_made_step(const char* function, const char* why) const {
  const pass::OptimizerStage* const stage =
      pass_ == nullptr ? nullptr : pass_->stage();  // NULL: also if the optimizer was destroyed
  if (stage != nullptr && stage->step_is_made())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the optimizer with in_backward has made its step within the last pass, %s", function, why);
}

void Model::require_own_values(const char* function, const void* owner) const {
  if (values_of_ != nullptr && values_of_ != owner)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the parameters hold averages; swap them back with ddp_ema_swap first, or the change is lost",
                     function);
}

int64_t Model::final_passes() const noexcept { return pass_ == nullptr ? 0 : pass_->results().final_passes(); }

bool Model::has_sliced_gradients() const noexcept { return pass_ != nullptr && pass_->results().are_sliced(); }

Model::Torn Model::begin_load(bool optimizer) noexcept {
  Torn before = torn_;
  if (pass_ == nullptr) return before;  // commit gives rank 0's values to all ranks
  pass_->forget_made_step();
  pass_->forget_hooks();
  if (pass_->results().take_torn()) before = Torn{true, true};
  torn_ = Torn{true, before.optimizer || optimizer};
  return before;
}

void Model::end_load(const Torn& torn) noexcept { torn_ = torn; }

}  // namespace ddp::model
