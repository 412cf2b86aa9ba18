// SPDX-License-Identifier: Apache-2.0
// Vectors of 64 bytes. Built with -mavx512{f,bw,vl,dq}, run only where device/cpu/dispatch.cpp found all four.
// Tested by unit/device/update_kernels_test.cpp.
#include "device/cpu/isa_avx512.hpp"
#include "device/cpu/update_kernel_loops.hpp"

namespace ddp::cpu {
namespace {

struct Avx512Update : Avx512 {
  template <class T, int lanes>
  using Vec = cpu::Vec<T, lanes>;

  [[gnu::always_inline]] static Vec<float, 16> root(Vec<float, 16> value) noexcept {
    return as<Vec<float, 16>>(_mm512_maskz_sqrt_ps(kAll, as<__m512>(value)));
  }
  [[gnu::always_inline]] static Vec<double, 8> root(Vec<double, 8> value) noexcept {
    return as<Vec<double, 8>>(_mm512_maskz_sqrt_pd(0xff, as<__m512d>(value)));
  }
};

}  // namespace

constinit const UpdateKernels kAvx512Updates = make_updates<Avx512Update>();

}  // namespace ddp::cpu
