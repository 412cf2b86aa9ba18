// SPDX-License-Identifier: Apache-2.0
#include "group/memory.hpp"

#include "exchange/memory_holds.hpp"
#include "group/gpu.hpp"
#include "group/health.hpp"

namespace ddp::group {

void* Memory::alloc(int64_t bytes) {
  health_.check_usable();
  return options_.backend == DDP_BACKEND_NCCL ? alloc_on_gpu(bytes) : alloc_in_host(bytes);
}

void* Memory::alloc_beside(const Tensor& tensor, int64_t bytes) {
  return tensor.is_on_gpu() ? alloc_on_gpu(bytes) : alloc_in_host(bytes);
}

void* Memory::alloc_in_host(int64_t bytes) { return collective::MemoryHolds::instance().alloc(arenas_.back(), bytes); }

void* Memory::alloc_on_gpu(int64_t bytes) { return gpu_.alloc(bytes); }

void Memory::free(void* data) {
  if (!gpu_.free(data)) collective::MemoryHolds::instance().free(arenas_, data);
}

}  // namespace ddp::group
