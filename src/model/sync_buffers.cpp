// SPDX-License-Identifier: Apache-2.0
#include "model/sync_buffers.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "device/memory.hpp"
#include "model/coalesced_broadcast.hpp"
#include "model/model.hpp"
#include "model/replicas.hpp"
#include "model/requirements.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

constexpr const char* kFunction = "ddp_model_sync_buffers";

/// Buffers may be half received when the group breaks: a rank that continues can use the old ones, and no replica is
/// complete if the sender has died.
void receive_buffers(Model& model, const std::vector<Tensor>& buffers, void* stream, const std::function<void()>& receive) {
  if (model.group().options().recoverable == 0) return model.values().change_together(receive);
  std::vector<device::Memory>& before = model.replicas().buffers_before();
  for (size_t k = before.size(); k < buffers.size(); ++k)
    before.emplace_back(device::of(buffers[k]), buffers[k].bytes(), "buffers as they were");
  for (size_t k = 0; k < buffers.size(); ++k)
    device::of(buffers[k]).copy(before[k].data(), buffers[k].data, buffers[k].bytes(), stream);
  on_error<Error>(receive, [&](const Error&) {
    for (size_t k = 0; k < buffers.size(); ++k)
      device::of(buffers[k]).copy(buffers[k].data, before[k].data(), buffers[k].bytes(), stream);
  });
}

void send_buffers(Model& model, int32_t root, void* stream) {
  std::vector<Tensor> tensors;
  int64_t bytes = 0;
  for (const Buffer& buffer : model.table().buffers()) {
    tensors.push_back(buffer.value);
    bytes += buffer.value.bytes();
  }
  if (bytes == 0) model.group().barrier();
  const auto send = [&] { broadcast_coalesced(model.group(), tensors, root, stream); };
  if (model.group().rank() == root)
    send();
  else
    receive_buffers(model, tensors, stream, send);
  model.pass().changed(pass::Change::kBuffers);
}

/// The joined ranks learn from the roll call that buffers are sent, and from which rank.
void sync_buffers_with_joined(Model& model, int32_t root, void* stream) {
  group::Group& group = model.group();
  parts::ModelPass& pass = model.passes();
  group.health().check_usable();
  const bootstrap::CallState::In inside(group.calls(), bootstrap::UserCall::kSyncBuffers, model.number());
  const bool is_root = root == group.rank();
  const auto call =
      static_cast<uint64_t>(parts::Call::kSyncBuffers) | (is_root ? static_cast<uint64_t>(parts::Call::kRootIsHere) : 0);
  const parts::JoinHeader& roll = pass.call_roll(static_cast<parts::Call>(call), root, false);
  if (!roll.heard(parts::Call::kRootIsHere))
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_sync_buffers: root is rank %d, which is out of data (ddp_model_join); take the values of a "
                     "rank that trains",
                     root);
  const int32_t absent = pass.attendance().absent_rank();
  pass.attendance().set_absent(-1);  // it has a part in this
  send_buffers(model, root, stream);
  pass.attendance().set_absent(absent);
}

}  // namespace

void sync_buffers(Model& model, int32_t root, void* stream) {
  group::Group& group = model.group();
  model.require_ready(kFunction);
  if (root < 0 || root >= group.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_sync_buffers: root is %d; the group has the ranks 0 to %d", root,
                     group.size() - 1);
  refuse_capture(model, kFunction, stream);
  if (!model.passes().parts().is_first())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_sync_buffers: the step has begun, and virtual rank %d is next; call it before the first "
                     "part of a step",
                     model.passes().parts().position());
  if (model.options().uneven_inputs != 0) return sync_buffers_with_joined(model, root, stream);
  group.check_idle(kFunction);
  const bootstrap::CallState::In inside(group.calls(), bootstrap::UserCall::kSyncBuffers, model.number());
  send_buffers(model, root, stream);
}

void answer_sync_buffers(Model& model, const parts::JoinHeader& roll, void* stream) {
  const bootstrap::CallState::Answering answering(model.group().calls(), bootstrap::UserCall::kSyncBuffers);
  if (roll.heard(parts::Call::kRootIsHere)) send_buffers(model, std::min(roll.argument(), model.group().size() - 1), stream);
}

}  // namespace ddp::model
