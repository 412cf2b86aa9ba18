// SPDX-License-Identifier: Apache-2.0
// The functions of the table that are calls of the CUDA runtime. Each returns the runtime's code and leaves no error behind
// for the next call. Threads: any; they work on the calling thread's current device.
// Tested by unit/cuda/module_test.cpp.
#pragma once

#include "device/gpu/gpu_abi.h"

namespace ddp::cuda {

/// Sets what runtime.cpp has.
void fill_runtime(ddp_gpu_table& table) noexcept;

}  // namespace ddp::cuda
