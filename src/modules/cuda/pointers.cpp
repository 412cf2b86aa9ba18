// SPDX-License-Identifier: Apache-2.0
#include "modules/cuda/pointers.hpp"

#include <cuda.h>

#include <atomic>

#include "modules/cuda/errors.hpp"

namespace ddp::cuda {
namespace {

using PointerGetAttributes = CUresult (*)(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer);
using PrimaryContextGetState = CUresult (*)(CUdevice device, unsigned* flags, int* active);

constexpr unsigned kSince = 7000;  // the CUDA version whose form of the functions this is

template <class Function>
cudaError_t find(const char* name, Function& out) noexcept {
  static std::atomic<Function> known{nullptr};  // each function has a type of its own
  out = known.load(std::memory_order_relaxed);
  if (out != nullptr) return cudaSuccess;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &entry, kSince, cudaEnableDefault, &found);
#else
  static_cast<void>(kSince);
  const cudaError_t code = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
  if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) out = reinterpret_cast<Function>(entry);
  known.store(out, std::memory_order_relaxed);
  return code;
}

}  // namespace

int32_t pointer_device(const void* memory, int32_t* out_device, int32_t* out_host_reads) noexcept {
  *out_device = -1;
  *out_host_reads = 1;
  PointerGetAttributes attributes_of = nullptr;
  if (const cudaError_t code = find("cuPointerGetAttributes", attributes_of); code != cudaSuccess) {
    static_cast<void>(settled(code));
    const bool no_gpu = code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice || code == cudaErrorStubLibrary;
    return no_gpu ? 0 : static_cast<int32_t>(code);  // without a GPU all memory is the host's
  }
  if (attributes_of == nullptr) return static_cast<int32_t>(cudaErrorSymbolNotFound);
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* results[] = {&type, &managed, &ordinal};
  const CUresult result = attributes_of(3, wanted, results, reinterpret_cast<CUdeviceptr>(memory));
  // An address that the driver does not know is success with type 0. A driver that was not started yet has given out no
  // memory.
  if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT)
    return 0;
  if (result != CUDA_SUCCESS) return static_cast<int32_t>(result);  // the runtime numbers these codes alike
  if (type == CU_MEMORYTYPE_DEVICE || managed != 0) *out_device = ordinal;
  if (type == CU_MEMORYTYPE_DEVICE && managed == 0) *out_host_reads = 0;
  return 0;
}

int32_t device_is_used(int32_t device, int32_t* out_used) noexcept {
  *out_used = 1;
  PrimaryContextGetState state_of = nullptr;
  if (const cudaError_t code = find("cuDevicePrimaryCtxGetState", state_of); code != cudaSuccess)
    static_cast<void>(settled(code));
  unsigned flags = 0;
  int active = 1;
  if (state_of != nullptr && state_of(device, &flags, &active) == CUDA_SUCCESS) *out_used = active;
  return 0;
}

}  // namespace ddp::cuda
