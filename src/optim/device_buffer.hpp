// Zeroed memory of the library's own beside a tensor: on the GPU on which the tensor lies, or else in host memory. Making
// some on a GPU and freeing it may wait for the GPU.
// Tested by unit/optim/ema_test.cpp and gpu_host/optimizer_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.hpp"
#include "device/gpu/device.hpp"
#include "os/memory.hpp"

namespace ddp::optim {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Throws OUT_OF_MEMORY; `what` says what for.
  DeviceBuffer(const Tensor& tensor, int64_t bytes, const char* what) {
    if (tensor.gpu != nullptr)
      on_gpu_ = gpu::Array(*tensor.gpu, bytes, what);
    else
      on_host_ = os::LargeArray(static_cast<size_t>(bytes), what);
  }
  [[nodiscard]] std::byte* data() const noexcept { return on_gpu_.data() != nullptr ? on_gpu_.data() : on_host_.data(); }

 private:
  os::LargeArray on_host_;
  gpu::Array on_gpu_;
};

}  // namespace ddp::optim
