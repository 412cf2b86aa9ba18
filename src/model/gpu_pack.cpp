#include "model/gpu_pack.hpp"

#include <limits>

#include "device/gpu/device.hpp"
#include "group/consensus.hpp"

namespace ddp::model {
namespace {

int64_t bytes_of_all(const std::vector<Tensor>& parts) noexcept {
  int64_t bytes = 0;
  for (const Tensor& part : parts) bytes += part.bytes();
  return bytes;
}

}  // namespace

GpuPack::GpuPack(group::Group& group, std::vector<Tensor> parts, void* stream)
    : group_(group),
      parts_(std::move(parts)),
      stream_(stream),
      bytes_(bytes_of_all(parts_)),
      memory_(group::or_break(group, group::Part::kOwn, [&] { return group.gpu_scratch().take(bytes_, stream); })) {}

Tensor GpuPack::tensor() const noexcept {
  const Tensor& like = parts_.front();
  Tensor whole = flat_tensor(memory_.data(), like.dtype, bytes_ / dtype_size(like.dtype));
  whole.device_index = like.device_index;
  whole.device = like.device;
  return whole;
}

void GpuPack::move(Way way) {
  const gpu::Device& device = gpu::of(parts_.front());
  const ddp_dtype dtype = parts_.front().dtype;
  std::vector<ddp_gpu_span> spans;
  std::byte* packed = memory_.data();
  for (const Tensor& part : parts_) {
    spans.push_back(way == Way::kIn ? ddp_gpu_span{part.data, packed, part.count}
                                    : ddp_gpu_span{packed, part.data, part.count});
    packed += part.bytes();
  }
  group::or_break(group_, group::Part::kOwn, [&] {
    if (!is_floating(dtype)) {
      for (const ddp_gpu_span& span : spans) device.copy(span.to, span.from, span.count * dtype_size(dtype), stream_);
      return;
    }
    const gpu::Device::Current current(device);
    const ddp_gpu_stop stop = way == Way::kOut ? group_.gpu_stop(stream_) : nullptr;
    device.check(device.table().move(spans.data(), std::ssize(spans), dtype, dtype, 1,
                                     std::numeric_limits<double>::infinity(), stop, stream_),
                 "packing small tensors");
  });
}

void GpuPack::fill() { move(Way::kIn); }
void GpuPack::empty() { move(Way::kOut); }

void GpuPack::done() {
  group::or_break(group_, group::Part::kOwn, [&] { memory_.done(); });
}

}  // namespace ddp::model
