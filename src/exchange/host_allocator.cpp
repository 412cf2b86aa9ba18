// SPDX-License-Identifier: Apache-2.0
#include "exchange/host_allocator.hpp"

namespace ddp::collective {

void* HostAllocator::alloc(int64_t bytes) {
  os::LargeArray array(static_cast<size_t>(bytes), "the group's memory");
  void* const data = array.data();
  const std::lock_guard lock(mutex_);
  arrays_.emplace(data, std::move(array));
  return data;
}

bool HostAllocator::free(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  return arrays_.erase(data) != 0;
}

}  // namespace ddp::collective
