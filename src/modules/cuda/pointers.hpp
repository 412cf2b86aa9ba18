// SPDX-License-Identifier: Apache-2.0
// What the driver is asked: which device an address belongs to, and whether a device is used. Any thread.
// Tested by unit/cuda/module_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::cuda {

/// As the table's. Asks the driver
/// itself, because the runtime's question would make a context, some hundred MB, on device 0 for a process that has not used
/// its GPU yet.
int32_t pointer_device(const void* memory, int32_t* out_device, int32_t* out_host_reads) noexcept;
/// Has this process a primary context on the device? Yes if the driver cannot be asked.
int32_t device_is_used(int32_t device, int32_t* out_used) noexcept;

}  // namespace ddp::cuda
