// SPDX-License-Identifier: Apache-2.0
// NCCL as the table of the module has it: dtypes and operations translated, calls forwarded. Threads: as in gpu_abi.h.
// Tested by unit/cuda/nccl_test.cpp.
#pragma once

#include "device/gpu/gpu_abi.h"

namespace ddp::cuda {

/// The table's open_nccl. Every file that was opened stays so, and asking again for one that is open gives the same table.
int32_t open_nccl(const char* path, const ddp_nccl_table** out, char* error, int64_t capacity) noexcept;
/// The table's find_nccl.
int32_t find_nccl(const ddp_nccl_table** out, char* error, int64_t capacity) noexcept;

}  // namespace ddp::cuda
