// SPDX-License-Identifier: Apache-2.0
#include "model/pack.hpp"

#include "group/consensus.hpp"
#include "group/gpu.hpp"

namespace ddp::model {
namespace {

int64_t bytes_of_all(const std::vector<Tensor>& parts) noexcept {
  int64_t bytes = 0;
  for (const Tensor& part : parts) bytes += part.bytes();
  return bytes;
}

}  // namespace

Pack::Pack(group::Group& group, const std::vector<Tensor>& parts, std::vector<std::byte>& buffer, void* stream)
    : group_(group), parts_(parts), stream_(stream), home_(device::of(parts.front())), bytes_(bytes_of_all(parts)) {
  group::or_break(group_, group::Part::kOwn, [&] {
    if (!home_.is_immediate()) {
      data_ = scratch_.emplace(group.gpu().scratch().take(bytes_, stream_)).data();
    } else {
      if (std::ssize(buffer) < bytes_) buffer.resize(static_cast<size_t>(bytes_));
      data_ = buffer.data();
    }
  });
}

Tensor Pack::tensor() const noexcept {
  Tensor whole = flat_part(parts_.front(), 0, bytes_ / dtype_size(parts_.front().dtype));
  whole.data = data_;
  return whole;
}

void Pack::move(Way way) {
  const ddp_dtype dtype = parts_.front().dtype;
  group::or_break(group_, group::Part::kOwn, [&] {
    std::vector<device::Span> spans;
    std::byte* packed = data_;
    for (const Tensor& part : parts_) {
      if (part.count > 0)
        spans.push_back(way == Way::kIn ? device::Span{part.data, packed, part.count}
                                        : device::Span{packed, part.data, part.count});
      packed += part.bytes();
    }
    const bool can_stop = way == Way::kOut && !home_.is_immediate();
    const ddp_gpu_stop stop = can_stop ? group_.gpu().stop_on(stream_) : nullptr;
    home_.apply({device::Operation::Kind::kCopy, 1, "packing small tensors"}, spans.data(), std::ssize(spans), dtype, dtype,
                {stream_, stop});
  });
}

void Pack::done() {
  if (scratch_) group::or_break(group_, group::Part::kOwn, [&] { scratch_->done(); });
}

}  // namespace ddp::model
