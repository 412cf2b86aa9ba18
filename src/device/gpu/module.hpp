// SPDX-License-Identifier: Apache-2.0
// Finding and opening libddp_cuda.so, the module that knows a GPU. The core depends on no CUDA: on a machine without GPU,
// driver or module everything else works, and a call that needs a GPU gets an error that names the missing one.
//
// The first file of that name (os/module_files.hpp) is taken, opened with RTLD_NOW | RTLD_LOCAL and never closed: threads of
// the driver may still run in it.
// Threads: any.
// Tested by unit/device/gpu_module_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "device/gpu/gpu_abi.h"

namespace ddp::gpu {

/// Throws NOT_SUPPORTED: it is missing, or it belongs to another version of libddp.
[[nodiscard]] const ddp_gpu_table& open_module(const std::vector<std::string>& candidates);

/// The module, found as above, or the table that a test has set.
[[nodiscard]] const ddp_gpu_table& load_module();

/// The module if this process has opened it, or the table that a test has set; NULL: neither, or this is a fork of that
/// process.
[[nodiscard]] const ddp_gpu_table* opened_module() noexcept;

/// How many GPUs this process sees, 1 or more. Throws NOT_SUPPORTED: no driver, or no GPU, and what to do.
[[nodiscard]] int32_t count_devices(const ddp_gpu_table& table);

/// NCCL as the module opens it: the file in DDP_NCCL_LIBRARY, a copy that the process has already, or the loader's search.
/// Throws NOT_SUPPORTED with the attempts.
[[nodiscard]] const ddp_nccl_table& load_nccl(const ddp_gpu_table& table);

/// The NCCL that made the communicators of this process: the copy that it has loaded. Throws NOT_SUPPORTED.
[[nodiscard]] const ddp_nccl_table& find_nccl(const ddp_gpu_table& table);

/// Use this table in the place of the module; NULL: no longer. Tests only, while nothing of a GPU exists.
void set_table(const ddp_gpu_table* table) noexcept;

}  // namespace ddp::gpu
