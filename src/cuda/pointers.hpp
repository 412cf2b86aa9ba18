// SPDX-License-Identifier: Apache-2.0
// Which device an address belongs to. Any thread.
// Tested by unit/cuda/module_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::cuda {

/// *out_device: the device that the memory was allocated on (managed memory too), or -1: it is the host's. Asks the driver
/// itself, because the runtime's question would make a context, some hundred MB, on device 0 for a process that has not used
/// its GPU yet.
/// Has this process a primary context on the device? Yes if the driver cannot be asked.
int32_t device_is_used(int32_t device, int32_t* out_used) noexcept;
int32_t pointer_device(const void* memory, int32_t* out_device) noexcept;

}  // namespace ddp::cuda
