// A checked view of a caller's ddp_tensor: dense, row-major, sizes without overflow.
// Tested by unit/base/tensor_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "ddp/types.h"

namespace ddp {

struct Tensor {
  std::byte* data = nullptr;
  ddp_dtype dtype = DDP_F32;
  int32_t ndim = 0;
  std::array<int64_t, DDP_MAX_DIMENSIONS> shape{};
  int64_t count = 0;  // elements

  [[nodiscard]] int64_t bytes() const noexcept { return count * dtype_size(dtype); }
  [[nodiscard]] bool same_shape(const Tensor& other) const noexcept;
};

/// Check every field of a CPU tensor; `what` names it in the error ("parameter \"w1\""). Throws INVALID_ARGUMENT, NOT_SUPPORTED.
[[nodiscard]] Tensor checked_tensor(const ddp_tensor* tensor, const std::string& what);

/// A flat tensor of `count` elements.
[[nodiscard]] Tensor flat_tensor(void* data, ddp_dtype dtype, int64_t count) noexcept;

/// Complex elements as pairs of real ones: the same memory, one more dimension of 2. Other tensors as they are. Inside the library there
/// are no complex tensors: this is called where they come in.
[[nodiscard]] Tensor real_view(Tensor tensor) noexcept;

/// The way back: the tensor that real_view() made from one of `dtype`.
[[nodiscard]] Tensor declared_view(Tensor tensor, ddp_dtype dtype) noexcept;

[[nodiscard]] ddp_tensor to_c(const Tensor& tensor) noexcept;

/// "F32 [2, 3]"
[[nodiscard]] std::string describe(const Tensor& tensor);

}  // namespace ddp
