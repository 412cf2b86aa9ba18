// SPDX-License-Identifier: Apache-2.0
// Tracks the users of host memory that groups gave out. A block has an owner (a model, or the program that called
// ddp_group_alloc) and any number of holds (ddp_memory_retain): slices and arrays of a language that may outlive the owner.
// It goes back to its arena with the last of them. The arena itself, which is the mapping of the memory, lives as long as
// one of its blocks. The table is process-wide, as the tables of handles are: a hold is known by an address alone and may
// outlive every other object. Promises: release and the end of an owner never allocate. A fork begins with an empty table:
// memory of its parent stays as it is there. Threads: any. Tested by unit/exchange/memory_holds_test.cpp, capi/memory_test.c
// and the bindings' tests of lifetime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "exchange/arena.hpp"
#include "os/process.hpp"

namespace ddp::collective {

class MemoryHolds {
 public:
  static MemoryHolds& instance() noexcept;

  /// A zeroed block with an owner. Throws OUT_OF_MEMORY.
  [[nodiscard]] void* alloc(const std::shared_ptr<Arena>& arena, int64_t bytes);
  /// Its owner is done with it. Throws INVALID_ARGUMENT if it is no block of one of these arenas that still has its owner.
  void free(const std::vector<std::shared_ptr<Arena>>& arenas, void* data);
  /// The owners of all blocks of an arena were destroyed.
  void end(const Arena& arena) noexcept;

  /// One more hold on the block that contains an address. False if there is no such block.
  [[nodiscard]] bool retain(const void* data) noexcept;
  /// One hold less. False if the address is in no block that is held; true in a fork for memory that it did not make.
  [[nodiscard]] bool release(const void* data) noexcept;

 private:
  /// In a fork: a thread of the parent may have held the lock and left half a change behind.
  void begin_anew() noexcept;

  struct Block {
    std::byte* end = nullptr;
    std::shared_ptr<Arena> arena;
    int64_t holds = 0;
    bool owned = true;
  };
  using Blocks = std::map<std::byte*, Block>;  // by their begin
  [[nodiscard]] Blocks::iterator find(const void* data) noexcept;
  [[nodiscard]] std::shared_ptr<Arena> erase_unused(Blocks::iterator entry) noexcept;

  os::PerProcess process_;
  std::mutex mutex_;  // guards all below
  bool is_fork_ = false;
  Blocks blocks_;
};

}  // namespace ddp::collective
