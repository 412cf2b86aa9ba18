// SPDX-License-Identifier: Apache-2.0
#include "group/memory.hpp"

#include <utility>

#include "collective/memory_holds.hpp"
#include "collective/nccl/nccl_transport.hpp"
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

void* Memory::alloc_on_gpu(int64_t bytes) {
  std::map<const std::byte*, int64_t> noted;
  noted.emplace(nullptr, bytes);
  auto node = noted.extract(noted.begin());  // so that nothing fails behind the allocation
  void* const data = gpu_.nccl().alloc(bytes);
  node.key() = static_cast<const std::byte*>(data);
  on_gpu_.insert(std::move(node));
  return data;
}

bool Memory::gave_on_gpu(const std::byte* data, int64_t bytes) const noexcept {
  auto after = on_gpu_.upper_bound(data);
  if (after == on_gpu_.begin()) return false;
  const auto& [begin, size] = *--after;
  return data + bytes <= begin + size;
}

void Memory::free(void* data) {
  if (nccl::NcclTransport* const nccl = gpu_.existing_nccl(); nccl != nullptr && nccl->free(data)) {
    on_gpu_.erase(static_cast<const std::byte*>(data));
    return;
  }
  collective::MemoryHolds::instance().free(arenas_, data);
}

}  // namespace ddp::group
