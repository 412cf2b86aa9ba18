// SPDX-License-Identifier: Apache-2.0
// NCCL's interface for kernels, where the build has a header of the versions that are known: 2.28.7, the first whose
// symmetric memory is sound, to 2.28.*. Its structs are laid out by the header, so the library that is opened must be of the
// very same version. Without it, or where the compiler does not take it (DDP_NO_NCCL_DEVICE), the module has no multicast,
// and all else is the same.
// Any thread.
// Tested by unit/cuda/nccl_test.cpp (what a module has) and by compiling.
#pragma once

#include <cstdint>

#if !defined(DDP_NO_NCCL_DEVICE) && __has_include(<nccl.h>) && __has_include(<nccl_device.h>)
#include <nccl.h>
#if NCCL_VERSION_CODE >= 22807 && NCCL_VERSION_CODE < 22900
#include <nccl_device.h>
#define DDP_NCCL_DEVICE 1
#endif
#endif

namespace ddp::cuda {

#if defined(DDP_NCCL_DEVICE)
inline constexpr int32_t kNcclDeviceVersion = NCCL_VERSION_CODE;

/// What a team is (ddp_gpu_multicast::team).
struct Team {
  ncclDevComm comm;
};
#else
inline constexpr int32_t kNcclDeviceVersion = -1;
#endif

}  // namespace ddp::cuda
