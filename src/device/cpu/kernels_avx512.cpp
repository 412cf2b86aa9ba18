// SPDX-License-Identifier: Apache-2.0
// The loops for Avx512 (isa_avx512.hpp).
// Tested by unit/device/reduce_test.cpp and arrays_test.cpp.
#include "device/cpu/isa_avx512.hpp"
#include "device/cpu/make_kernels.hpp"

namespace ddp::cpu {

constinit const Kernels kAvx512Kernels = make_kernels<Avx512>();

}  // namespace ddp::cpu
