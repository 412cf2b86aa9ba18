#include "sync/gpu_pack.hpp"

#include "device/gpu/device.hpp"

namespace ddp {
namespace {

int64_t bytes_of_all(const std::vector<Tensor>& parts) noexcept {
  int64_t bytes = 0;
  for (const Tensor& part : parts) bytes += part.bytes();
  return bytes;
}

}  // namespace

GpuPack::GpuPack(Group& group, std::vector<Tensor> parts, void* stream)
    : group_(group), parts_(std::move(parts)), stream_(stream), bytes_(bytes_of_all(parts_)),
      memory_(or_break(group, [&] { return group.gpu_scratch().take(bytes_, stream); })) {}

Tensor GpuPack::tensor() const noexcept {
  const Tensor& like = parts_.front();
  Tensor whole = flat_tensor(memory_.data(), like.dtype, bytes_ / dtype_size(like.dtype));
  whole.device_index = like.device_index;
  whole.gpu = like.gpu;
  return whole;
}

void GpuPack::copy(Way way) {
  const gpu::Device& device = *parts_.front().gpu;
  or_break(group_, [&] {
    int64_t at = 0;
    for (const Tensor& part : parts_) {
      std::byte* const packed = memory_.data() + at;
      device.copy(way == Way::kIn ? packed : part.data, way == Way::kIn ? part.data : packed, part.bytes(), stream_);
      at += part.bytes();
    }
  });
}

void GpuPack::fill() { copy(Way::kIn); }
void GpuPack::empty() { copy(Way::kOut); }

void GpuPack::done() {
  or_break(group_, [&] { memory_.done(); });
}

}  // namespace ddp
