// SPDX-License-Identifier: Apache-2.0
#include "model/coalesced_broadcast.hpp"

#include <algorithm>
#include <limits>

#include "device/gpu/transfer.hpp"
#include "exchange/gpu_side.hpp"
#include "model/pack.hpp"

namespace ddp::model {

std::vector<Message> plan_messages(const std::vector<Tensor>& tensors, int64_t limit) {
  std::vector<Message> messages;
  int64_t open = 0;                      // bytes of the last message, if more fits into it
  const device::Device* home = nullptr;  // of that message
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].bytes();
    if (bytes == 0) continue;
    if (bytes <= std::min(kSmallBytes, limit)) {
      if (open == 0 || open + bytes > kPackBytes || home != &device::of(tensors[i])) {
        messages.emplace_back();
        open = 0;
        home = &device::of(tensors[i]);
      }
      messages.back().push_back({i, 0, bytes});
      open += bytes;
      continue;
    }
    for (int64_t at = 0; at < bytes; at += limit) messages.push_back({CoalescedPart{i, at, std::min(limit, bytes - at)}});
    open = 0;
  }
  return messages;
}

void CoalescedBroadcast::send(const std::vector<Tensor>& tensors, const Message& message) {
  if (message.size() == 1) {
    const CoalescedPart& span = message.front();
    return group_.broadcast(gpu::bytes_of(tensors[span.tensor], span.offset, span.bytes), root_, stream_);
  }
  std::vector<Tensor> parts;
  for (const CoalescedPart& span : message) parts.push_back(gpu::bytes_of(tensors[span.tensor], span.offset, span.bytes));
  Pack pack(group_, parts, staging_, stream_);
  if (group_.rank() == root_) pack.fill();
  group_.broadcast(pack.tensor(), root_, stream_);
  if (group_.rank() != root_) pack.empty();
  pack.done();
}

void broadcast_coalesced(group::Group& group, const std::vector<Tensor>& tensors, int32_t root, void* stream) {
  if (group.size() == 1) return;
  CoalescedBroadcast broadcast(group, root, stream);
  for (const Message& message : plan_messages(tensors, std::numeric_limits<int64_t>::max()))
    broadcast.send(tensors, message);
  group.gpu_side().settle(nullptr);
}

}  // namespace ddp::model
