// SPDX-License-Identifier: Apache-2.0
// Zeroed memory of the library's own on a device, that frees itself. Making it and freeing it may wait for a GPU.
// Tested by unit/device/host_test.cpp and unit/device/gpu_device_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "device/device.hpp"
#include "os/memory.hpp"

namespace ddp::device {

class Memory {
 public:
  Memory() = default;
  /// Throws OUT_OF_MEMORY; `what` names its purpose.
  Memory(const Device& device, int64_t bytes, const char* what) : Memory(device.allocate(bytes, what)) {}
  /// In host memory.
  explicit Memory(os::LargeArray array) noexcept : in_host_(std::move(array)) {}
  /// What `device` frees.
  Memory(const Device& device, void* memory) noexcept : device_(&device), memory_(memory) {}
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(in_host_, other.in_host_);
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~Memory() {
    if (memory_ != nullptr) device_->free(memory_);
  }
  [[nodiscard]] std::byte* data() const noexcept {
    return memory_ != nullptr ? static_cast<std::byte*>(memory_) : in_host_.data();
  }

 private:
  os::LargeArray in_host_;
  const Device* device_ = nullptr;
  void* memory_ = nullptr;  // of the device; NULL: no memory, or in the host
};

}  // namespace ddp::device
