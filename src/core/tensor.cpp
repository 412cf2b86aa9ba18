// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace ddp {
namespace {

/// No machine has as many in one address space (52 bits on ARM, 57 on x86).
constexpr int64_t kMostBytes = int64_t{1} << 57;

}  // namespace

bool Tensor::same_shape(const Tensor& other) const noexcept {
  return ndim == other.ndim && std::equal(shape.begin(), shape.begin() + ndim, other.shape.begin());
}

Tensor checked_tensor(const ddp_tensor* tensor, const char* what) {
  if (tensor != nullptr && tensor->device == DDP_CUDA)
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "%s is on a GPU; this call takes tensors in host memory", what);
  return checked_any_tensor(tensor, what);
}

Tensor checked_any_tensor(const ddp_tensor* tensor, const char* what) {
  if (tensor == nullptr) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s is NULL", what);
  if (!is_dtype(tensor->dtype))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s has the unknown dtype %d", what, static_cast<int>(tensor->dtype));
  if (tensor->device != DDP_CPU && tensor->device != DDP_CUDA)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s has the unknown device %d", what, static_cast<int>(tensor->device));
  if (tensor->device == DDP_CUDA && tensor->device_index < 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s has the GPU number %d", what, tensor->device_index);
  if (tensor->ndim < 0 || tensor->ndim > DDP_MAX_DIMENSIONS)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s has %d dimensions; 0 to %d are possible", what, tensor->ndim,
                     DDP_MAX_DIMENSIONS);
  if (is_complex(tensor->dtype) && tensor->ndim == DDP_MAX_DIMENSIONS)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s has %d dimensions; complex tensors have 0 to %d", what, tensor->ndim,
                     DDP_MAX_DIMENSIONS - 1);
  Tensor checked;
  checked.data = static_cast<std::byte*>(tensor->data);
  checked.dtype = tensor->dtype;
  checked.ndim = tensor->ndim;
  checked.device_index = tensor->device == DDP_CUDA ? tensor->device_index : -1;
  checked.count = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d) {
    const int64_t extent = tensor->shape[d];
    if (extent < 0)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s has the size %lld in dimension %d", what,
                       static_cast<long long>(extent), d);
    checked.shape[static_cast<size_t>(d)] = extent;
    int64_t bytes = 0;
    if (__builtin_mul_overflow(checked.count, extent, &checked.count) ||
        __builtin_mul_overflow(checked.count, dtype_size(tensor->dtype), &bytes) || bytes > kMostBytes)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s has more than 2^57 bytes, which no machine can address", what);
  }
  if (checked.data == nullptr && checked.count > 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s has a NULL data pointer but %lld elements", what,
                     static_cast<long long>(checked.count));
  const int64_t alignment = dtype_size(part_dtype(checked.dtype));
  if (checked.count > 0 && reinterpret_cast<uintptr_t>(checked.data) % static_cast<uintptr_t>(alignment) != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s is not aligned to its element size of %lld bytes", what,
                     static_cast<long long>(alignment));
  return checked;
}

Tensor flat_tensor(void* data, ddp_dtype dtype, int64_t count) noexcept {
  Tensor tensor;
  tensor.data = static_cast<std::byte*>(data);
  tensor.dtype = dtype;
  tensor.ndim = 1;
  tensor.shape[0] = count;
  tensor.count = count;
  return tensor;
}

Tensor flat_part(const Tensor& tensor, int64_t first, int64_t count) noexcept {
  Tensor part = flat_tensor(tensor.data + first * dtype_size(tensor.dtype), tensor.dtype, count);
  part.device_index = tensor.device_index;
  part.device = tensor.device;
  return part;
}

Tensor real_view(Tensor tensor) noexcept {
  if (!is_complex(tensor.dtype)) return tensor;
  tensor.dtype = part_dtype(tensor.dtype);
  tensor.shape[static_cast<size_t>(tensor.ndim++)] = 2;
  tensor.count *= 2;
  return tensor;
}

Tensor declared_view(Tensor tensor, ddp_dtype dtype) noexcept {
  if (!is_complex(dtype)) return tensor;
  tensor.dtype = dtype;
  --tensor.ndim;
  tensor.count /= 2;
  return tensor;
}

ddp_tensor to_c(const Tensor& tensor) noexcept {
  ddp_tensor result{};
  result.data = tensor.data;
  result.dtype = tensor.dtype;
  result.device = tensor.is_on_gpu() ? DDP_CUDA : DDP_CPU;
  result.device_index = tensor.is_on_gpu() ? tensor.device_index : 0;
  result.ndim = tensor.ndim;
  for (int32_t d = 0; d < tensor.ndim; ++d) result.shape[d] = tensor.shape[static_cast<size_t>(d)];
  return result;
}

std::string describe(const Tensor& tensor) {
  std::string text = std::string(dtype_name(tensor.dtype)) + " [";
  for (int32_t d = 0; d < tensor.ndim; ++d)
    text += (d > 0 ? ", " : "") + std::to_string(tensor.shape[static_cast<size_t>(d)]);
  return text + (tensor.is_on_gpu() ? "] on a GPU" : "]");
}

}  // namespace ddp
