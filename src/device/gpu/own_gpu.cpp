// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/own_gpu.hpp"

#include "core/error.hpp"
#include "device/gpu/host_memory.hpp"
#include "device/gpu/module.hpp"

namespace ddp::gpu {
namespace {

int32_t choose_index(int32_t wanted, int32_t local_rank, int32_t count) {
  if (wanted >= count)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "device_index is %d, but this process sees %d GPU%s, numbered from 0",
                     wanted, count, count == 1 ? "" : "s");
  if (wanted >= 0) return wanted;
  if (count == 1) return 0;  // CUDA_VISIBLE_DEVICES gave each rank its own
  if (local_rank >= count)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "this is rank %d of its host, but there are %d GPUs; start fewer ranks, or set device_index",
                     local_rank, count);
  return local_rank;
}

}  // namespace

const Device& OwnGpu::open() {
  const std::lock_guard lock(opening_);
  if (device_ == nullptr) {
    const ddp_gpu_table& table = load_module();
    const int32_t index = choose_index(wanted_, local_rank_, count_devices(table));
    device_ = std::make_shared<Device>(table, index, owner_);
  }
  return *device_;
}

Scratch& OwnGpu::scratch() {
  const Device& device = open();
  if (scratch_ == nullptr) scratch_ = std::make_unique<Scratch>(device);
  return *scratch_;
}

Staging& OwnGpu::staging() {
  static_cast<void>(open());
  const std::lock_guard lock(opening_);
  if (staging_ == nullptr) staging_ = std::make_shared<Staging>(device_);
  return *staging_;
}

GivenMemory& OwnGpu::memory() {
  const Device& device = open();
  if (memory_ == nullptr) memory_ = std::make_unique<GivenMemory>(device);
  return *memory_;
}

void OwnGpu::rename(const std::string& owner) {
  const std::lock_guard lock(opening_);
  owner_ = owner;
  if (device_ != nullptr) device_->owner().set(owner);
}

void OwnGpu::bind(Tensor& tensor, const char* what) {
  if (!tensor.is_on_gpu()) return require_host(tensor, what, kDescribeIt);
  const Device& device = open();
  if (tensor.device_index != device.index())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s is on GPU %d, but this rank works on %s (option device_index)", what,
                     tensor.device_index, device.name().c_str());
  if (tensor.count > 0) require_on(device, tensor.data, what);
  tensor.device = &device;
}

/// A program reduces the same arrays again and again, and the next answer is the same.
void OwnGpu::require_host(const Tensor& tensor, const char* what, const char* instead) {
  std::atomic<const std::byte*>& seen = seen_[reinterpret_cast<uintptr_t>(tensor.data) / 64 % std::size(seen_)];
  if (seen.load(std::memory_order_relaxed) == tensor.data) return;
  gpu::require_host(tensor, what, instead);
  seen.store(tensor.data, std::memory_order_relaxed);
}

}  // namespace ddp::gpu
