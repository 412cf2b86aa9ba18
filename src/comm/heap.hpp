// Memory of a group whose transport knows no memory in the others' reach: from the heap, known by address so that a wrong pointer is
// refused, and freed with the group.
// Threads: any.
// Tested by unit/comm/heap_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "base/memory.hpp"

namespace ddp {

class Heap {
 public:
  /// Zeroed, 64-byte aligned. Throws OUT_OF_MEMORY.
  [[nodiscard]] void* alloc(int64_t bytes);
  /// Throws INVALID_ARGUMENT if it does not come from alloc.
  void free(void* data);

 private:
  std::mutex mutex_;  // guards arrays_
  std::map<void*, LargeArray> arrays_;
};

}  // namespace ddp
