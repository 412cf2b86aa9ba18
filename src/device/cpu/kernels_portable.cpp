// SPDX-License-Identifier: Apache-2.0
// The loops for Portable (isa_portable.hpp).
// Tested by unit/device/reduce_test.cpp and arrays_test.cpp.
#include "device/cpu/isa_portable.hpp"
#include "device/cpu/make_kernels.hpp"

namespace ddp::cpu {

constinit const Kernels kPortableKernels = make_kernels<Portable>();

}  // namespace ddp::cpu
