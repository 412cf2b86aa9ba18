// SPDX-License-Identifier: Apache-2.0
// The loops for Neon (isa_neon.hpp).
// Tested by unit/device/reduce_test.cpp and arrays_test.cpp.
#include "device/cpu/isa_neon.hpp"
#include "device/cpu/make_kernels.hpp"

namespace ddp::cpu {

constinit const Kernels kNeonKernels = make_kernels<Neon>();

}  // namespace ddp::cpu
