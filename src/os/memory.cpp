// SPDX-License-Identifier: Apache-2.0
#include "os/memory.hpp"

#include <atomic>
#include <cstdlib>
#include <utility>

#include "core/error.hpp"
#include "os/huge_pages.hpp"

namespace ddp::os {
namespace {

constexpr size_t kAlignment = 64;

// From here on memory comes from the system itself, on a huge page's boundary.
constexpr size_t kLarge = 2 * kHugePage;

// calloc, because it need not write: fresh pages are zero already.
void* system_allocate(size_t bytes) noexcept { return bytes >= kLarge ? map_zeroed(bytes) : std::calloc(bytes, 1); }
void system_release(void* memory, size_t bytes) noexcept { bytes >= kLarge ? unmap(memory, bytes) : std::free(memory); }

constexpr MemoryTable kSystemMemory{&system_allocate, &system_release};
std::atomic<const MemoryTable*> current_memory{&kSystemMemory};

}  // namespace

void set_memory_table(const MemoryTable* table) noexcept { current_memory.store(table != nullptr ? table : &kSystemMemory); }

LargeArray::LargeArray(size_t bytes, const char* what)
    : memory_(current_memory.load()->allocate(bytes + kAlignment)), bytes_(bytes + kAlignment) {
  if (memory_ == nullptr) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%zu bytes of %s could not be allocated", bytes, what);
  const auto past = reinterpret_cast<uintptr_t>(memory_) % kAlignment;
  data_ = static_cast<std::byte*>(memory_) + (past == 0 ? 0 : kAlignment - past);
}

LargeArray::LargeArray(LargeArray&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

LargeArray& LargeArray::operator=(LargeArray&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

LargeArray::~LargeArray() {
  if (memory_ != nullptr) current_memory.load()->release(memory_, bytes_);
}

}  // namespace ddp::os
