#include "model/coalesced_broadcast.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "device/gpu/transfer.hpp"
#include "model/gpu_pack.hpp"

namespace ddp::model {

std::vector<Message> plan_messages(const std::vector<Tensor>& tensors, int64_t limit) {
  std::vector<Message> messages;
  int64_t open = 0;  // bytes of the last message, if more fits into it
  bool on_gpu = false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].bytes();
    if (bytes == 0) continue;
    if (bytes <= std::min(kSmallBytes, limit)) {
      if (open == 0 || open + bytes > kPackBytes || on_gpu != tensors[i].is_on_gpu()) {
        messages.emplace_back();
        open = 0;
        on_gpu = tensors[i].is_on_gpu();
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

void Spreader::send(const std::vector<Tensor>& tensors, const Message& message) {
  if (message.size() == 1) {
    const CoalescedPart& span = message.front();
    return group_.broadcast(gpu::bytes_of(tensors[span.tensor], span.offset, span.bytes), root_, stream_);
  }
  tensors[message.front().tensor].is_on_gpu() ? send_on_gpu(tensors, message) : send_in_host(tensors, message);
}

void Spreader::send_in_host(const std::vector<Tensor>& tensors, const Message& message) {
  if (staging_.empty()) staging_.resize(static_cast<size_t>(kPackBytes));
  int64_t at = 0;
  for (const CoalescedPart& span : message) {
    if (group_.rank() == root_)
      std::memcpy(staging_.data() + at, tensors[span.tensor].data + span.offset, static_cast<size_t>(span.bytes));
    at += span.bytes;
  }
  group_.broadcast(flat_tensor(staging_.data(), DDP_U8, at), root_);
  at = 0;
  for (const CoalescedPart& span : message) {
    if (group_.rank() != root_)
      std::memcpy(tensors[span.tensor].data + span.offset, staging_.data() + at, static_cast<size_t>(span.bytes));
    at += span.bytes;
  }
}

void Spreader::send_on_gpu(const std::vector<Tensor>& tensors, const Message& message) {
  std::vector<Tensor> parts;
  for (const CoalescedPart& span : message) parts.push_back(gpu::bytes_of(tensors[span.tensor], span.offset, span.bytes));
  GpuPack pack(group_, std::move(parts), stream_);
  if (group_.rank() == root_) pack.fill();
  group_.broadcast(pack.tensor(), root_, stream_);
  if (group_.rank() != root_) pack.empty();
  pack.done();
}

void spread(group::Group& group, const std::vector<Tensor>& tensors, int32_t root, void* stream) {
  if (group.size() == 1) return;
  Spreader spreader(group, root, stream);
  for (const Message& message : plan_messages(tensors, std::numeric_limits<int64_t>::max())) spreader.send(tensors, message);
}

}  // namespace ddp::model
