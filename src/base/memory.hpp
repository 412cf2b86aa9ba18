// Large arrays of the library: zeroed, 64-byte aligned, from a table that tests can replace to make the n-th allocation fail (seam:
// allocator). Any thread.
// Tested by unit/base/memory_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ddp {

struct MemoryTable {
  void* (*allocate)(int64_t bytes) noexcept;  // zeroed, 64-byte aligned; NULL if there is none
  void (*release)(void* data) noexcept;
};

/// Replace the table; NULL restores the system's. Tests only, while nothing is allocated.
void set_memory_table(const MemoryTable* table) noexcept;

/// An array that frees itself.
class Array {
 public:
  Array() = default;
  /// Throws OUT_OF_MEMORY. An array of 0 bytes has no address.
  explicit Array(int64_t bytes);
  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }

 private:
  struct Release {
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Release> data_;
  int64_t bytes_ = 0;
};

}  // namespace ddp
