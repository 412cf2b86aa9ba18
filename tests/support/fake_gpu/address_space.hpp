// SPDX-License-Identifier: Apache-2.0
// Two mappings of the same shape. The first cannot be touched: its addresses are what device pointers are. The second, at a
// fixed distance, holds the bytes. Each device has a part of its own; the last part is pinned host memory, whose host
// addresses are those of the second mapping. The addresses after the parts are for handles.
// Addresses are given again only when a part has been used up once, and between two blocks there is a gap, so that an access
// to freed memory or beyond a block is recognised.
// Not for several threads at once.
// Tested by unit/fake_gpu/memory_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ddp::test::fake_gpu {

enum class BlockKind { kPlain, kNccl, kPinned };

struct Block {
  uintptr_t begin = 0;  // device address
  int64_t bytes = 0;
  BlockKind kind = BlockKind::kPlain;
  int32_t device = 0;  // that was current when it was allocated
};

class AddressSpace {
 public:
  AddressSpace(int32_t devices, int64_t device_bytes, bool poison);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// 0 when the part is full.
  [[nodiscard]] uintptr_t allocate(BlockKind kind, int32_t device, int64_t bytes);
  void release(uintptr_t begin);
  /// The live block that contains `address`; NULL: none.
  [[nodiscard]] const Block* find(uintptr_t address) const noexcept;
  [[nodiscard]] const std::map<uintptr_t, Block>& blocks() const noexcept { return blocks_; }

  /// Is it in the range of devices or of pinned memory, live or not?
  [[nodiscard]] bool is_device_address(uintptr_t address) const noexcept { return address - front_ < used_; }
  /// The device address of a pinned block's host address; 0: the address is in no pinned block.
  [[nodiscard]] uintptr_t device_address_of_pinned(uintptr_t host) const noexcept;
  [[nodiscard]] void* bytes_at(uintptr_t device_address) const noexcept;
  [[nodiscard]] uintptr_t new_handle() noexcept;

 private:
  [[nodiscard]] uintptr_t place(size_t part, uintptr_t bytes) const noexcept;

  uintptr_t part_bytes_;
  size_t parts_;
  uintptr_t used_;  // bytes of all parts
  bool poison_;
  uintptr_t front_;  // the mapping that cannot be touched
  uintptr_t back_;
  uintptr_t handles_ = 0;  // given so far
  std::vector<uintptr_t> cursors_;
  std::map<uintptr_t, Block> blocks_;
};

}  // namespace ddp::test::fake_gpu
