// SPDX-License-Identifier: Apache-2.0
#include "model/join.hpp"

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "model/model.hpp"
#include "model/sync_buffers.hpp"

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
  parts::ModelPass& pass = model.pass();
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

}  // namespace ddp::model
