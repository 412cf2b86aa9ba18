// SPDX-License-Identifier: Apache-2.0
// Large arrays of the library, from a table that tests can replace to make the n-th allocation fail (seam: allocator). Any
// thread.
// Tested by unit/os/memory_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::os {

struct MemoryTable {
  void* (*allocate)(size_t bytes) noexcept;  // zeroed, aligned as malloc aligns; NULL without memory
  void (*release)(void* memory, size_t bytes) noexcept;
};

/// Replace the table; NULL restores the system's. Tests only, while no array exists.
void set_memory_table(const MemoryTable* table) noexcept;

/// Zeroed memory on a 64-byte boundary that frees itself. Pages that nothing was written to cost nothing. Large ones are on
/// huge pages where the system has some (huge_pages.hpp).
class LargeArray {
 public:
  LargeArray() = default;
  /// Throws OUT_OF_MEMORY; `what` names the purpose.
  LargeArray(size_t bytes, const char* what);
  LargeArray(LargeArray&& other) noexcept;
  LargeArray& operator=(LargeArray&& other) noexcept;
  ~LargeArray();
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;           // of it
  std::byte* data_ = nullptr;  // in it, on the boundary
};

}  // namespace ddp::os
