// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes, which every 64-bit machine has in its basic instruction set (also used where device/cpu chooses
// "neon"). Built with -fno-math-errno, so that the square root is the machine's instruction. Tested by
// unit/device/update_kernels_test.cpp.
#include "device/cpu/isa_portable.hpp"
#include "device/cpu/update_kernel_loops.hpp"

namespace ddp::cpu {
namespace {

struct PortableUpdate : Portable {
  template <class T, int lanes>
  using Vec = cpu::Vec<T, lanes>;

  [[gnu::always_inline]] static Vec<float, 4> root(Vec<float, 4> value) noexcept {
    return Vec<float, 4>{__builtin_sqrtf(value[0]), __builtin_sqrtf(value[1]), __builtin_sqrtf(value[2]),
                         __builtin_sqrtf(value[3])};
  }
  [[gnu::always_inline]] static Vec<double, 2> root(Vec<double, 2> value) noexcept {
    return Vec<double, 2>{__builtin_sqrt(value[0]), __builtin_sqrt(value[1])};
  }
};

}  // namespace

constinit const UpdateKernels kPortableUpdates = make_updates<PortableUpdate>();

}  // namespace ddp::cpu
