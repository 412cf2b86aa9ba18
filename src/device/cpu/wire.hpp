// SPDX-License-Identifier: Apache-2.0
// The end of a sum whose rule has a wire type (reduce.hpp, "Two bytes on the wire"). Internal to this folder.
// Tested by unit/device/wire_test.cpp.
#pragma once

#include <cstdint>

#include "device/cpu/reduce.hpp"

namespace ddp::cpu::wire {

/// Elements of a finished sum of terms.
void finish(const ReduceRule& rule, const void* sum, void* out, int64_t count) noexcept;

}  // namespace ddp::cpu::wire
