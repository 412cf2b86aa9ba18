// SPDX-License-Identifier: Apache-2.0
// Memory of a group whose transport knows no memory in the others' reach: from the heap, known by address so that a wrong
// pointer is refused.
// Threads: any.
// Tested by unit/exchange/host_allocator_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "exchange/arena.hpp"
#include "os/memory.hpp"

namespace ddp::collective {

class HostAllocator final : public Arena {
 public:
  [[nodiscard]] void* alloc(int64_t bytes) override;
  [[nodiscard]] bool free(void* data) noexcept override;

 private:
  std::mutex mutex_;  // guards arrays_
  std::map<void*, os::LargeArray> arrays_;
};

}  // namespace ddp::collective
