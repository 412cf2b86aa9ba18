// SPDX-License-Identifier: Apache-2.0
// The loops for Avx2 (isa_avx2.hpp).
// Tested by unit/device/reduce_test.cpp and arrays_test.cpp.
#include "device/cpu/isa_avx2.hpp"
#include "device/cpu/make_kernels.hpp"

namespace ddp::cpu {

constinit const Kernels kAvx2Kernels = make_kernels<Avx2>();

}  // namespace ddp::cpu
