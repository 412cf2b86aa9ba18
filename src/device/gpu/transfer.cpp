// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/transfer.hpp"

#include <cstring>

namespace ddp::gpu {

const Device* device_of(const std::vector<Tensor>& tensors) noexcept {
  for (const Tensor& tensor : tensors)
    if (tensor.device != nullptr) return &of(tensor);
  return nullptr;
}

Tensor bytes_of(const Tensor& tensor, int64_t offset, int64_t bytes) noexcept {
  Tensor part = flat_tensor(tensor.data + offset, DDP_U8, bytes);
  part.device_index = tensor.device_index;
  part.device = tensor.device;
  return part;
}

Transfer::Block::Block(const Device& device) : memory(device, kBlockBytes, "copies between GPU and host"), done(device) {}

Transfer::Transfer(const Device* device) : device_(device) {
  if (device == nullptr) return;
  stream_ = std::make_unique<Stream>(*device, Stream::Priority::kNormal);
  for (auto& block : blocks_) block = std::make_unique<Block>(*device);
}

Transfer::~Transfer() {
  if (stream_ != nullptr) static_cast<void>(device_->table().stream_synchronize(stream_->get()));  // before the blocks go
}

Transfer::Block& Transfer::next() noexcept {
  Block& block = *blocks_[next_];
  next_ = 1 - next_;
  return block;
}

void Transfer::fetch(const std::byte* from, int64_t bytes) {
  Block& block = next();
  device_->copy(block.memory.host(), from, bytes, stream_->get());
  block.done.record(stream_->get());
  block.used = true;
}

const std::byte* Transfer::fetched() {
  Block& block = *blocks_[oldest_];
  oldest_ = 1 - oldest_;
  block.done.synchronize();
  return block.memory.host();
}

std::byte* Transfer::room() {
  Block& block = *blocks_[next_];
  if (block.used) block.done.synchronize();
  return block.memory.host();
}

void Transfer::store(std::byte* to, int64_t bytes) {
  Block& block = next();
  device_->copy(to, block.memory.host(), bytes, stream_->get());
  block.done.record(stream_->get());
  block.used = true;
}

void Transfer::read_to(const Tensor& tensor, int64_t offset, int64_t bytes, std::byte* to) {
  read(tensor, offset, bytes, [&](const std::byte* from, int64_t now) {
    std::memcpy(to, from, static_cast<size_t>(now));
    to += now;
  });
}

void Transfer::write_from(const Tensor& tensor, int64_t offset, int64_t bytes, const std::byte* from) {
  write(tensor, offset, bytes, [&](std::byte* to, int64_t now) {
    std::memcpy(to, from, static_cast<size_t>(now));
    from += now;
  });
}

void Transfer::finish() const {
  if (stream_ != nullptr) device_->synchronize(stream_->get());
}

}  // namespace ddp::gpu
