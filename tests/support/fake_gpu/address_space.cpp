// SPDX-License-Identifier: Apache-2.0
#include "support/fake_gpu/address_space.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "support/fake_gpu/fake_gpu.hpp"

namespace ddp::test::fake_gpu {
namespace {

constexpr uintptr_t kAlignment = 256;
constexpr uintptr_t kHandleBytes = 64;
constexpr uintptr_t kHandleRange = uintptr_t{1} << 32;
constexpr int64_t kLarge = int64_t{4} << 20;  // freed blocks above give their pages back

uintptr_t map(uintptr_t bytes, int protection) {
  void* const memory = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes, MADV_DONTFORK);  // as a driver's memory
  return reinterpret_cast<uintptr_t>(memory);
}

constexpr uintptr_t rounded(uintptr_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

AddressSpace::AddressSpace(int32_t devices, int64_t device_bytes, bool poison)
    : part_bytes_(rounded(static_cast<uintptr_t>(device_bytes))),
      parts_(static_cast<size_t>(devices) + 1),
      used_(part_bytes_ * parts_),
      poison_(poison),
      front_(map(used_ + kHandleRange, PROT_NONE)),
      back_(map(used_, PROT_READ | PROT_WRITE)),
      cursors_(parts_) {}

AddressSpace::~AddressSpace() {
  ::munmap(reinterpret_cast<void*>(front_), used_ + kHandleRange);
  ::munmap(reinterpret_cast<void*>(back_), used_);
}

/// A free place of `bytes` behind the cursor, or else from the beginning of the part; 0: none.
uintptr_t AddressSpace::place(size_t part, uintptr_t bytes) const noexcept {
  const uintptr_t begin = front_ + part * part_bytes_, end = begin + part_bytes_;
  for (uintptr_t at : {begin + cursors_[part], begin}) {
    for (auto next = blocks_.lower_bound(at);; ++next) {
      const uintptr_t until = next == blocks_.end() || next->first > end ? end : next->first;
      if (at < until && until - at >= bytes) return at;
      if (until == end) break;
      at = next->first + rounded(static_cast<uintptr_t>(next->second.bytes)) + kAlignment;
    }
  }
  return 0;
}

uintptr_t AddressSpace::allocate(BlockKind kind, int32_t device, int64_t bytes) {
  const size_t part = kind == BlockKind::kPinned ? parts_ - 1 : static_cast<size_t>(device);
  if (bytes <= 0 || static_cast<uintptr_t>(bytes) > part_bytes_) return 0;
  const uintptr_t room = rounded(static_cast<uintptr_t>(bytes)) + kAlignment;
  const uintptr_t begin = place(part, room);
  if (begin == 0) return 0;
  cursors_[part] = begin + room - (front_ + part * part_bytes_);
  blocks_[begin] = Block{begin, bytes, kind, device};
  if (kind == BlockKind::kPinned)
    std::memset(bytes_at(begin), 0, static_cast<size_t>(bytes));
  else if (poison_)
    std::memset(bytes_at(begin), kFresh, static_cast<size_t>(bytes));
  return begin;
}

void AddressSpace::release(uintptr_t begin) {
  const Block block = blocks_.at(begin);
  blocks_.erase(begin);
  if (block.bytes < kLarge) {
    if (poison_) std::memset(bytes_at(begin), kFreed, static_cast<size_t>(block.bytes));
    return;
  }
  constexpr uintptr_t kPage = 4096;  // whole pages only: a neighbour may begin on the last one
  const uintptr_t from = (begin - front_ + back_ + kPage - 1) / kPage * kPage;
  const uintptr_t to = (begin - front_ + back_ + static_cast<uintptr_t>(block.bytes)) / kPage * kPage;
  ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

const Block* AddressSpace::find(uintptr_t address) const noexcept {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  const Block& block = std::prev(next)->second;
  return address - block.begin < static_cast<uintptr_t>(block.bytes) ? &block : nullptr;
}

uintptr_t AddressSpace::device_address_of_pinned(uintptr_t host) const noexcept {
  const uintptr_t at = host - back_;
  return at < used_ && at >= used_ - part_bytes_ ? front_ + at : 0;
}

void* AddressSpace::bytes_at(uintptr_t device_address) const noexcept {
  return reinterpret_cast<void*>(device_address - front_ + back_);
}

uintptr_t AddressSpace::new_handle() noexcept { return front_ + used_ + kHandleBytes * ++handles_; }

}  // namespace ddp::test::fake_gpu
