#include "sync/spread.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace ddp {

std::vector<Message> plan_messages(const std::vector<Tensor>& tensors, int64_t limit) {
  std::vector<Message> messages;
  int64_t open = 0;  // bytes of the last message, if more fits into it
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].bytes();
    if (bytes == 0) continue;
    if (bytes <= std::min(kSmallBytes, limit)) {
      if (open == 0 || open + bytes > kPackBytes) {
        messages.emplace_back();
        open = 0;
      }
      messages.back().push_back({i, 0, bytes});
      open += bytes;
      continue;
    }
    for (int64_t at = 0; at < bytes; at += limit) messages.push_back({Span{i, at, std::min(limit, bytes - at)}});
    open = 0;
  }
  return messages;
}

void Spreader::send(const std::vector<Tensor>& tensors, const Message& message) {
  if (message.size() == 1) {
    const Span& span = message.front();
    group_.broadcast(flat_tensor(tensors[span.tensor].data + span.offset, DDP_U8, span.bytes), root_);
    return;
  }
  if (staging_.empty()) staging_.resize(static_cast<size_t>(kPackBytes));
  int64_t at = 0;
  for (const Span& span : message) {
    if (group_.rank() == root_)
      std::memcpy(staging_.data() + at, tensors[span.tensor].data + span.offset, static_cast<size_t>(span.bytes));
    at += span.bytes;
  }
  group_.broadcast(flat_tensor(staging_.data(), DDP_U8, at), root_);
  at = 0;
  for (const Span& span : message) {
    if (group_.rank() != root_)
      std::memcpy(tensors[span.tensor].data + span.offset, staging_.data() + at, static_cast<size_t>(span.bytes));
    at += span.bytes;
  }
}

void spread(Group& group, const std::vector<Tensor>& all, int32_t root) {
  if (group.size() == 1) return;
  std::vector<Tensor> tensors;
  for (const Tensor& tensor : all) {
    if (tensor.is_on_gpu())
      group.broadcast(tensor, root);
    else
      tensors.push_back(tensor);
  }
  Spreader spreader(group, root);
  for (const Message& message : plan_messages(tensors, std::numeric_limits<int64_t>::max())) spreader.send(tensors, message);
}

}  // namespace ddp
