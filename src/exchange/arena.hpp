// SPDX-License-Identifier: Apache-2.0
// Where a group's host memory comes from: a rank's shared memory (shm/region.hpp) or the heap (heap.hpp).
// Threads: any.
#pragma once

#include <cstdint>

#include "core/error.hpp"

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

  // Memory of the program that is shared where it is, if ranks share memory at all.
  /// It is in the others' reach from now on, with its contents; no thread writes to it meanwhile. Throws NOT_SUPPORTED with
  /// the reason, INVALID_ARGUMENT (some of it is shared), OUT_OF_MEMORY; then nothing has changed.
  virtual void share(void*, int64_t) {
    throw Error(DDP_ERROR_NOT_SUPPORTED, "ddp_group_share: the ranks of this group share no memory; it stays private");
  }
  /// The way back, of memory that was shared by this address; false without such memory. Throws INVALID_STATE,
  /// OUT_OF_MEMORY.
  [[nodiscard]] virtual bool unshare(void*) { return false; }
  /// All of it is private until the group recovers. False: some is not (it is in the log). Writing threads lose nothing.
  virtual bool make_private() noexcept { return true; }
};

}  // namespace ddp::collective
