#include "group/memory.hpp"

#include "collective/memory_holds.hpp"
#include "collective/nccl/nccl_transport.hpp"
#include "group/gpu.hpp"
#include "group/health.hpp"

namespace ddp::group {

void* Memory::alloc(int64_t bytes) {
  health_.check_usable();
  return options_.backend == DDP_BACKEND_NCCL ? gpu_.nccl().alloc(bytes) : alloc_in_host(bytes);
}

void* Memory::alloc_beside(const Tensor& tensor, int64_t bytes) {
  return tensor.is_on_gpu() ? gpu_.nccl().alloc(bytes) : alloc_in_host(bytes);
}

void* Memory::alloc_in_host(int64_t bytes) { return collective::MemoryHolds::instance().alloc(arenas_.back(), bytes); }

void Memory::free(void* data) {
  if (nccl::NcclTransport* const nccl = gpu_.existing_nccl(); nccl != nullptr && nccl->free(data)) return;
  collective::MemoryHolds::instance().free(arenas_, data);
}

}  // namespace ddp::group
