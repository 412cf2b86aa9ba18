// SPDX-License-Identifier: Apache-2.0
// The group's memory where nothing is shared.
#include "exchange/host_allocator.hpp"

#include "support/check.hpp"

ddp_case(memory_is_zeroed_aligned_and_known) {
  collective::HostAllocator heap;
  auto* const data = static_cast<std::byte*>(heap.alloc(1000));
  expect(reinterpret_cast<uintptr_t>(data) % 64 == 0 && data[0] == std::byte{0} && data[999] == std::byte{0},
         "zeroed and aligned");
  int local = 0;
  expect(!heap.free(&local) && !heap.free(data + 64), "not its own");
  expect(heap.free(data) && !heap.free(data), "once");
  (void)heap.alloc(10);  // left to the heap's end; the leak sanitizer sees if it is forgotten
}
