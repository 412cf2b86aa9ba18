// Memory that a group gives out, in the reach of the other ranks.
// Threads: as Group.
// Tested by capi/memory_test.c, unit/collective/memory_holds_test.cpp and gpu_host/group_test.cpp.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"
#include "ddp/group.h"

namespace ddp::group {

class Channels;
class Gpu;
class Health;

class Memory {
 public:
  /// All of them live longer.
  Memory(const ddp_group_options& options, const Health& health, Channels& channels, Gpu& gpu) noexcept
      : options_(options), health_(health), channels_(channels), gpu_(gpu) {}

  /// Shared memory, or memory of the GPU in a group that was made for NCCL.
  [[nodiscard]] void* alloc(int64_t bytes);
  /// Shared memory, whatever the group was made for; or on the tensor's GPU if it lies on one.
  [[nodiscard]] void* alloc_beside(const Tensor& tensor, int64_t bytes);
  void free(void* data);

 private:
  [[nodiscard]] void* alloc_in_host(int64_t bytes);

  const ddp_group_options& options_;
  const Health& health_;
  Channels& channels_;
  Gpu& gpu_;
};

}  // namespace ddp::group
