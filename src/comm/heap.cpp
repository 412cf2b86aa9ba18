#include "comm/heap.hpp"

#include "base/error.hpp"

namespace ddp {

void* Heap::alloc(int64_t bytes) {
  LargeArray array(static_cast<size_t>(bytes), "the group's memory");
  void* const data = array.data();
  const std::lock_guard lock(mutex_);
  arrays_.emplace(data, std::move(array));
  return data;
}

void Heap::free(void* data) {
  const std::lock_guard lock(mutex_);
  if (arrays_.erase(data) == 0)
    throw Error(DDP_ERROR_INVALID_ARGUMENT, "ddp_group_free: this memory does not come from ddp_group_alloc of this group");
}

}  // namespace ddp
