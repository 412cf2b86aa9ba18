// SPDX-License-Identifier: Apache-2.0
// Where a group's host memory comes from: a rank's shared memory (shm/region.hpp) or the heap (heap.hpp).
// Threads: any.
#pragma once

#include <cstdint>

namespace ddp::collective {

class Arena {
 public:
  Arena() = default;
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Zeroed, 64-byte aligned. Throws OUT_OF_MEMORY.
  [[nodiscard]] virtual void* alloc(int64_t bytes) = 0;
  /// False if it does not come from alloc.
  [[nodiscard]] virtual bool free(void* data) noexcept = 0;
  /// Ends the access of other processes to this memory: it is moved to other pages, at the same addresses. Once; no thread
  /// may write to it meanwhile. Throws OUT_OF_MEMORY; then nothing has changed.
  virtual void fence() {}
  /// Do other processes reach it?
  [[nodiscard]] virtual bool is_shared() const noexcept { return false; }
};

}  // namespace ddp::collective
