// SPDX-License-Identifier: Apache-2.0
// A checked view of a caller's ddp_tensor: dense, row-major, sizes without overflow.
// Tested by unit/core/tensor_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/dtype.hpp"
#include "ddp/types.h"

namespace ddp::device {
class Device;
}  // namespace ddp::device

namespace ddp {

struct Tensor {
  std::byte* data = nullptr;  // not for the host to read if it is on a GPU
  ddp_dtype dtype = DDP_F32;
  int32_t ndim = 0;
  std::array<int64_t, DDP_MAX_DIMENSIONS> shape{};
  int64_t count = 0;          // elements
  int32_t device_index = -1;  // of its GPU; -1: in host memory
  const device::Device* device =
      nullptr;  // that GPU, once a group has bound the tensor to it (group::Gpu::bind); NULL: host memory

  [[nodiscard]] bool is_on_gpu() const noexcept { return device_index >= 0; }
  [[nodiscard]] int64_t bytes() const noexcept { return count * dtype_size(dtype); }
  [[nodiscard]] bool same_shape(const Tensor& other) const noexcept;
};

/// Check every field of a CPU tensor; `what` names it in the error ("parameter \"w1\""). Throws INVALID_ARGUMENT,
/// NOT_SUPPORTED for one on a GPU.
[[nodiscard]] Tensor checked_tensor(const ddp_tensor* tensor, const char* what);

/// The same of a tensor that may be on a GPU.
[[nodiscard]] Tensor checked_any_tensor(const ddp_tensor* tensor, const char* what);

/// A flat tensor of `count` elements.
[[nodiscard]] Tensor flat_tensor(void* data, ddp_dtype dtype, int64_t count) noexcept;

/// Elements `first` to `first + count` of a tensor, flat, where they are.
[[nodiscard]] Tensor flat_part(const Tensor& tensor, int64_t first, int64_t count) noexcept;

/// Complex elements as pairs of real ones: the same memory, one more dimension of 2. Other tensors as they are. Inside the
/// library there are no complex tensors: this is called where they come in.
[[nodiscard]] Tensor real_view(Tensor tensor) noexcept;

/// The way back: the tensor that real_view() made from one of `dtype`.
[[nodiscard]] Tensor declared_view(Tensor tensor, ddp_dtype dtype) noexcept;

[[nodiscard]] ddp_tensor to_c(const Tensor& tensor) noexcept;

/// "F32 [2, 3]", "F32 [2, 3] on a GPU"
[[nodiscard]] std::string describe(const Tensor& tensor);

}  // namespace ddp
