// What a model does for ranks with unequal data.
#include <algorithm>

#include "bootstrap/control/call_state.hpp"
#include "model/join.hpp"
#include "model/model.hpp"
#include "model/replicate.hpp"
#include "pass/pass.hpp"

namespace ddp::model {
namespace {

// Weights within these bounds keep sums of gradients far from the ends of F32.
constexpr double kSmallestWeight = 0x1p-40;
constexpr double kLargestWeight = 0x1p40;

}  // namespace

void Model::set_weight(double weight) {
  constexpr const char* kFunction = "ddp_model_set_weight";
  require_committed(kFunction);
  if (options_.divisor != DDP_DIVISOR_WEIGHTS)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the model divides by the number of ranks; set its option divisor = DDP_DIVISOR_WEIGHTS",
                     kFunction);
  if (weight != 0 && !(weight >= kSmallestWeight && weight <= kLargestWeight))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the weight is %g; it must be 0 or from 2^-40 to 2^40", kFunction,
                     weight);
  pass_->set_weight(weight);
}

void Model::set_last_pass() {
  require_committed("ddp_model_set_last_pass");
  pass_->set_last();
}

void Model::skip_backward(void* stream) {
  constexpr const char* kFunction = "ddp_model_skip_backward";
  require_ready(kFunction);
  require_whole(kFunction);
  if (hook_.kind == pass::Hook::Kind::kPulled)
    throw make_error(
        DDP_ERROR_NOT_SUPPORTED,
        "%s: this model's buckets are pulled; open a pass with the weight 0, mark everything and pull its buckets",
        kFunction);
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kSkipBackward);
  pass_->begin(DDP_PASS_REDUCE, pass::Pass::Role::kSkipping);
  pass_->end(stream);
  check_drift_when_due(stream);
}

void Model::abandon_backward(std::string reason, void* stream) {
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kAbandonBackward);
  if (open_pass().abandon(reason.empty() ? "no reason was given" : std::move(reason), stream)) return;
  check_drift_when_due(stream);  // as the others do now
  throw Error(DDP_ERROR_INVALID_STATE,
              "ddp_model_abandon_backward: all gradients had been sent, so the pass ended as if nothing had happened; "
              "abandon before the last mark");
}

void Model::fill_report(ddp_pass_report& report) const {
  require_committed("ddp_model_get_pass_report");
  if (pass_->rounds() - (pass_->is_open() ? 1 : 0) <= 0)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_get_pass_report: no pass with DDP_PASS_REDUCE has ended yet");
  pass_->attendance().fill_report(report);
}

void Model::join(void* stream) {
  constexpr const char* kFunction = "ddp_model_join";
  require_ready(kFunction);
  if (options_.uneven_inputs == 0)
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model was made without the option uneven_inputs = 1", kFunction);
  require_own_values(kFunction);
  group_->check_usable();
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kJoin, number_);
  const int32_t newest = answer_until_all_joined(*this, stream);
  pass_->forget_made_step();  // what all have in the end holds that step, or another
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : table_.parameters()) tensors.push_back(parameter.value);
  for (const Buffer& buffer : table_.buffers()) tensors.push_back(buffer.value);
  replicate(*group_, kFunction, std::move(tensors), kept_equal(), newest, stream);
}

void Model::require_everybody(const char* function) {
  if (pass_ == nullptr || options_.uneven_inputs == 0) return;
  group_->check_idle(function);
  (void)pass_->call_roll(pass::Call::kRefused, 0, false);
  group_->check_idle(function);  // refuses while a rank only answers
}

/// The joined ranks learn from the roll call that buffers are sent, and from which rank.
void Model::sync_buffers_with_joined(int32_t root, void* stream) {
  group_->check_usable();
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kSyncBuffers, number_);
  const bool is_root = root == group_->rank();
  const auto call =
      static_cast<uint64_t>(pass::Call::kSyncBuffers) | (is_root ? static_cast<uint64_t>(pass::Call::kRootIsHere) : 0);
  const pass::JoinHeader& roll = pass_->call_roll(static_cast<pass::Call>(call), root, false);
  if (!roll.heard(pass::Call::kRootIsHere))
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_sync_buffers: root is rank %d, which is out of data (ddp_model_join); take the values of a "
                     "rank that trains",
                     root);
  const int32_t absent = pass_->attendance().absent_rank();
  pass_->attendance().set_absent(-1);  // it has a part in this
  send_buffers(root, stream);
  pass_->attendance().set_absent(absent);
}

void Model::answer_sync_buffers(const pass::JoinHeader& roll, void* stream) {
  const bootstrap::CallState::Answering answering(group_->calls(), bootstrap::UserCall::kSyncBuffers);
  if (roll.heard(pass::Call::kRootIsHere)) send_buffers(std::min(roll.argument(), group_->size() - 1), stream);
}

}  // namespace ddp::model
