// SPDX-License-Identifier: Apache-2.0
// Device memory that a group gives out. It is of NCCL's kind where there are other ranks, so that these can map it, and it
// is not registered (README.md, "Registered memory"). It outlives the communicator, so that addresses outlive a recovery.
// Threads: any.
// Tested by gpu_host/communicator_test.cpp, gpu_host/free_test.cpp and gpu_host/recoverable_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "device/gpu/device.hpp"

namespace ddp::gpu {

class GivenMemory {
 public:
  explicit GivenMemory(const Device& device) noexcept : device_(device) {}
  /// Frees what is left, if the device is done with it.
  ~GivenMemory();
  GivenMemory(const GivenMemory&) = delete;
  GivenMemory& operator=(const GivenMemory&) = delete;

  /// Takes over what NCCL has allocated. Throws OUT_OF_MEMORY, and then frees it.
  void take(void* memory, int64_t bytes, const ddp_nccl_table& nccl);
  /// Takes over memory of the device. Throws OUT_OF_MEMORY.
  void take(device::Memory memory, int64_t bytes);

  /// The piece that contains all of this, if any.
  struct Piece {
    std::byte* begin = nullptr;
    int64_t bytes = 0;
  };
  [[nodiscard]] std::optional<Piece> piece_of(const std::byte* data, int64_t bytes) const noexcept;
  /// Does a piece begin there?
  [[nodiscard]] bool owns(const void* memory) const noexcept;
  /// A piece, once nothing on the device touches it: NCCL's is unmapped at once.
  void free(void* memory) noexcept;

 private:
  struct Given {
    int64_t bytes = 0;
    const ddp_nccl_table* nccl = nullptr;  // whose it is; NULL: `plain`
    device::Memory plain;
  };
  void give_back(void* memory, const ddp_nccl_table* nccl) const noexcept;

  const Device& device_;
  mutable std::mutex mutex_;  // guards given_
  std::map<std::byte*, Given> given_;
};

}  // namespace ddp::gpu
