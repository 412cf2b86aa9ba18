// SPDX-License-Identifier: Apache-2.0
#include "model/uneven.hpp"

#include "control/call_state.hpp"
#include "model/model.hpp"

namespace ddp::model {
namespace {

// Weights within these bounds keep sums of gradients far from the ends of F32.
constexpr double kSmallestWeight = 0x1p-40;
constexpr double kLargestWeight = 0x1p40;

}  // namespace

void set_weight(Model& model, double weight) {
  constexpr const char* kFunction = "ddp_model_set_weight";
  model.require_committed(kFunction);
  if (model.options().divisor != DDP_DIVISOR_WEIGHTS)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the model divides by the number of ranks; set its option divisor = DDP_DIVISOR_WEIGHTS",
                     kFunction);
  if (weight != 0 && !(weight >= kSmallestWeight && weight <= kLargestWeight))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the weight is %g; it must be 0 or from 2^-40 to 2^40", kFunction,
                     weight);
  model.pass().set_weight(weight);
}

void set_last_pass(Model& model) {
  model.require_committed("ddp_model_set_last_pass");
  model.pass().set_last();
}

void skip_backward(Model& model, void* stream) {
  constexpr const char* kFunction = "ddp_model_skip_backward";
  model.require_ready(kFunction);
  model.values().require_whole(kFunction);
  if (model.hook().kind == parts::Hook::Kind::kPulled)
    throw make_error(
        DDP_ERROR_NOT_SUPPORTED,
        "%s: this model's buckets are pulled; open a pass with the weight 0, mark everything and pull its buckets",
        kFunction);
  model.gradients().require_given(kFunction);  // the result goes there
  const bootstrap::CallState::In inside(model.group().calls(), bootstrap::UserCall::kSkipBackward);
  const bool is_last = model.pass().parts().is_last();
  model.pass().begin(is_last ? DDP_PASS_REDUCE : DDP_PASS_PART, pass::Role::kSkipping);
  model.pass().end(stream);
  if (is_last) model.replicas().check_after_pass(stream);
}

void abandon_backward(Model& model, std::string reason, void* stream) {
  const bootstrap::CallState::In inside(model.group().calls(), bootstrap::UserCall::kAbandonBackward);
  if (model.pass().abandon(reason.empty() ? "no reason was given" : std::move(reason), stream)) return;
  model.replicas().check_after_pass(stream);  // as the others do now
  throw Error(DDP_ERROR_INVALID_STATE,
              "ddp_model_abandon_backward: all gradients had been sent, so the pass ended as if nothing had happened; "
              "abandon before the last mark");
}

const parts::Attendance& last_attendance(const Model& model, const char* function) {
  model.require_committed(function);
  parts::ModelPass& pass = model.pass();
  if (pass.attendance().rounds() - (pass.is_open() ? 1 : 0) <= 0)
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: no pass with DDP_PASS_REDUCE has ended yet", function);
  return pass.attendance();
}

}  // namespace ddp::model
