// SPDX-License-Identifier: Apache-2.0
#include "group/memory.hpp"

#include "exchange/gpu_side.hpp"
#include "exchange/memory_holds.hpp"
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

void Memory::share(void* data, int64_t bytes) {
  health_.check_usable();
  arenas_.back()->share(data, bytes);
}

void Memory::unshare(void* data) {
  for (const auto& arena : arenas_)
    if (arena->unshare(data)) return;
  throw Error(DDP_ERROR_INVALID_ARGUMENT,
              "ddp_group_unshare: no memory was shared with this group by this address, or it was made private already");
}

void Memory::make_private() noexcept {
  for (const auto& arena : arenas_) (void)arena->make_private();
}

}  // namespace ddp::group
