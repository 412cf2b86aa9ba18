// SPDX-License-Identifier: Apache-2.0
// How many cores this process may use at once: affinity and cgroup quota. Any thread.
// Tested by unit/os/cores_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::os {

[[nodiscard]] int32_t usable_cores() noexcept;

}  // namespace ddp::os
