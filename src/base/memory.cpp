#include "base/memory.hpp"

#include <atomic>
#include <cstring>
#include <new>

#include "base/error.hpp"

namespace ddp {
namespace {

constexpr std::align_val_t kAlignment{64};

void* system_allocate(int64_t bytes) noexcept {
  void* data = ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow);
  if (data != nullptr) std::memset(data, 0, static_cast<size_t>(bytes));
  return data;
}

void system_release(void* data) noexcept { ::operator delete(data, kAlignment); }

constexpr MemoryTable kSystem{&system_allocate, &system_release};
std::atomic<const MemoryTable*> current{&kSystem};

}  // namespace

void set_memory_table(const MemoryTable* table) noexcept { current.store(table != nullptr ? table : &kSystem); }

Array::Array(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_.reset(static_cast<std::byte*>(current.load()->allocate(bytes)));
  if (data_ == nullptr) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%lld bytes could not be allocated", static_cast<long long>(bytes));
}

void Array::Release::operator()(std::byte* data) const noexcept { current.load()->release(data); }

}  // namespace ddp
