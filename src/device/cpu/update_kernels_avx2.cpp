// SPDX-License-Identifier: Apache-2.0
// Vectors of 32 bytes. Built with -mavx2 -mf16c, run only where device/cpu/dispatch.cpp found both.
// Tested by unit/device/update_kernels_test.cpp.
#include "device/cpu/isa_avx2.hpp"
#include "device/cpu/update_kernel_loops.hpp"

namespace ddp::cpu {
namespace {

struct Avx2Update : Avx2 {
  template <class T, int lanes>
  using Vec = cpu::Vec<T, lanes>;

  [[gnu::always_inline]] static Vec<float, 8> root(Vec<float, 8> value) noexcept {
    return as<Vec<float, 8>>(_mm256_sqrt_ps(as<__m256>(value)));
  }
  [[gnu::always_inline]] static Vec<double, 4> root(Vec<double, 4> value) noexcept {
    return as<Vec<double, 4>>(_mm256_sqrt_pd(as<__m256d>(value)));
  }
};

}  // namespace

constinit const UpdateKernels kAvx2Updates = make_updates<Avx2Update>();

}  // namespace ddp::cpu
