// SPDX-License-Identifier: Apache-2.0
// Teams and windows of the table (device/gpu/gpu_abi.h), for multicast.
// Threads: as NCCL's.
// Tested by unit/cuda/nccl_test.cpp.
#pragma once

#include "cuda/nccl_loader.hpp"
#include "device/gpu/gpu_abi.h"

namespace ddp::cuda {

/// Sets the four functions, if the build and `library`, which lives as long as the process, have them.
void fill_teams(ddp_nccl_table& table, const nccl::Library& library) noexcept;

}  // namespace ddp::cuda
