// SPDX-License-Identifier: Apache-2.0
// Codes of the CUDA runtime: their texts, and their meaning for the caller. Pure functions, except settled().
// Any thread.
// Tested by unit/cuda/module_test.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ddp::cuda {

/// Toolkit and driver: the first with kernels whose parameters have 32,764 bytes.
inline constexpr int kOldestCuda = 12010;

/// The code as the table gives it. The runtime repeats the last error of a thread on request; that is taken back here, so
/// that no later launch is blamed for it.
inline int32_t settled(cudaError_t code) noexcept {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return static_cast<int32_t>(code);
}

const char* error_name(int32_t code) noexcept;
const char* error_text(int32_t code) noexcept;
/// A ddp_gpu_error_kind.
int32_t error_kind(int32_t code) noexcept;

}  // namespace ddp::cuda
