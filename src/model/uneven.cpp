// SPDX-License-Identifier: Apache-2.0
#include "model/uneven.hpp"

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "model/gradients.hpp"
#include "model/model.hpp"
#include "model/replicas.hpp"
#include "model/sync_buffers.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

/// The lowest of the ranks that joined after the most passes.
int32_t newest(group::Group& group, int64_t rounds) {
  ByteWriter mine;
  mine.number(rounds);
  int64_t most = -1;
  int32_t newest = 0;
  const std::vector<std::string> all = group.gather("join", mine.bytes());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto theirs = ByteReader(all[rank]).number<int64_t>();
    if (theirs <= most) continue;
    most = theirs;
    newest = static_cast<int32_t>(rank);
  }
  return newest;
}

void answer_pass(pass::Pass& pass, group::Group& group, void* stream) {
  pass.begin(DDP_PASS_REDUCE, pass::Role::kJoined);
  const std::optional<Error> failure = try_to<Error>([&] { pass.end(stream); });
  if (!failure) return;
  group.health().check_usable();  // a void pass is the others' affair
  if (failure->status() != DDP_ERROR_INVALID_STATE) throw Error(*failure);
}

/// Until every rank has joined. Returns the lowest rank that trained to the last: its state is the newest.
int32_t answer_until_all_joined(Model& model, void* stream) {
  group::Group& group = model.group();
  parts::ModelPass& pass = model.passes();
  const int64_t rounds = pass.attendance().rounds();
  pass.attendance().set_absent(
      -1);  // that others joined before is a reason to refuse what this rank begins, and it begins nothing any more
  for (;;) {
    const parts::JoinHeader& roll = pass.call_roll(parts::Call::kNothing, 0, true);
    if (roll.heard(parts::Call::kPass))
      answer_pass(pass, group, stream);
    else if (roll.heard(parts::Call::kSyncBuffers))
      answer_sync_buffers(model, roll, stream);
    else if (!roll.heard(parts::Call::kRefused))
      break;
  }
  pass.attendance().set_absent(-1);
  return newest(group, rounds);
}

}  // namespace

void join(Model& model, void* stream) {
  constexpr const char* kFunction = "ddp_model_join";
  model.require_ready(kFunction);
  if (model.options().uneven_inputs == 0)
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model was made without the option uneven_inputs = 1", kFunction);
  model.values().require_own(kFunction);
  model.group().health().check_usable();
  const bootstrap::CallState::In inside(model.group().calls(), bootstrap::UserCall::kJoin, model.number());
  const int32_t newest = answer_until_all_joined(model, stream);
  model.pass().changed(pass::Change::kStep);  // what all have in the end holds that step, or another
  model.replicas().replicate_from(newest, kFunction, stream);
}

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
  model.passes().set_weight(weight);
}

void set_last_pass(Model& model) {
  model.require_committed("ddp_model_set_last_pass");
  model.passes().set_last();
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
  const bool is_last = model.passes().parts().is_last();
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
  parts::ModelPass& pass = model.passes();
  if (pass.attendance().rounds() - (pass.is_open() ? 1 : 0) <= 0)
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: no pass with DDP_PASS_REDUCE has ended yet", function);
  return pass.attendance();
}

}  // namespace ddp::model
