/* SPDX-License-Identifier: Apache-2.0 */
// Replaces the header of the CUDA runtime where kernels (src/modules/cuda/kernels/*.cu) are compiled as plain C++ for the
// host, so that tests run the very code on machines without a GPU, under the address sanitizer too. See threads.hpp for how
// a block of threads runs.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "support/host_cuda/threads.hpp"

#define CUDART_VERSION 13000
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static  // blocks run one after the other

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
using cudaStream_t = void*;

struct dim3 {
  unsigned x, y, z;
  explicit dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
/// Few processors, so that a block has several tiles.
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}

#define threadIdx (ddp::test::host_cuda::here())
#define blockIdx (ddp::test::host_cuda::block())
#define gridDim (ddp::test::host_cuda::grid())

inline void __syncthreads() { ddp::test::host_cuda::wait_for_block(); }

template <class T>
T __shfl_down_sync(unsigned, T value, int width) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = ddp::test::host_cuda::from_lane_below(bits, static_cast<unsigned>(width));
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to = before + value;
  return before;
}
template <class T>
T atomicMax(T* to, T value) {
  const T before = *to;
  if (value > before) *to = value;
  return before;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
void __stwb(T* to, T value) {
  *to = value;
}
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

/// Kernels here take one struct by value.
template <class Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters), dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t) {
  struct Call {
    void (*kernel)(Parameters);
    const Parameters* parameters;
  } call{kernel, static_cast<const Parameters*>(arguments[0])};
  ddp::test::host_cuda::run(
      grid.x, block.x, [](void* what) { static_cast<Call*>(what)->kernel(*static_cast<Call*>(what)->parameters); }, &call);
  return cudaSuccess;
}
