// SPDX-License-Identifier: Apache-2.0
// Memory that a group gives out, in the reach of the other ranks; and memory of the program that it shares where it is.
// Threads: as Group.
// Tested by capi/memory_test.c, capi/shared_memory_test.cpp, capi/shared_memory_end_test.cpp,
// unit/exchange/memory_holds_test.cpp and gpu_host/group_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.hpp"
#include "ddp/group.h"
#include "exchange/arena.hpp"

namespace ddp::collective {
class GpuSide;
}  // namespace ddp::collective
namespace ddp::group {

class Health;

/// The arenas of a group's host memory: allocations come from the last one; the others are from before a recovery.
using Arenas = std::vector<std::shared_ptr<collective::Arena>>;

class Memory {
 public:
  /// All of them live longer.
  Memory(const ddp_group_options& options, const Health& health, const Arenas& arenas, collective::GpuSide& gpu) noexcept
      : options_(options), health_(health), arenas_(arenas), gpu_(gpu) {}

  /// Shared memory, or memory of the GPU in a group that was made for NCCL.
  [[nodiscard]] void* alloc(int64_t bytes);
  /// Shared memory, whatever the group was made for; or memory of the tensor's GPU.
  [[nodiscard]] void* alloc_beside(const Tensor& tensor, int64_t bytes);
  void free(void* data);

  // Memory of the program that is shared where it is; as Arena says. Any thread, while no collective call runs.
  void share(void* data, int64_t bytes);
  void unshare(void* data);
  void make_private() noexcept;

 private:
  [[nodiscard]] void* alloc_in_host(int64_t bytes);
  [[nodiscard]] void* alloc_on_gpu(int64_t bytes);

  const ddp_group_options& options_;
  const Health& health_;
  const Arenas& arenas_;
  collective::GpuSide& gpu_;
};

}  // namespace ddp::group
