// Vectors of 32 bytes. Built with -mavx2 -mf16c, run only where device/cpu/dispatch.cpp found both.
// Tested by unit/update/kernels_test.cpp.
#include "device/cpu/isa_avx2.hpp"
#include "update/kernel_loops.hpp"

namespace ddp {
namespace {

struct Avx2 : cpu::Avx2 {
  template <class T, int lanes>
  using Vec = cpu::Vec<T, lanes>;

  [[gnu::always_inline]] static Vec<float, 8> root(Vec<float, 8> value) noexcept {
    return cpu::as<Vec<float, 8>>(_mm256_sqrt_ps(cpu::as<__m256>(value)));
  }
  [[gnu::always_inline]] static Vec<double, 4> root(Vec<double, 4> value) noexcept {
    return cpu::as<Vec<double, 4>>(_mm256_sqrt_pd(cpu::as<__m256d>(value)));
  }
};

}  // namespace

constinit const UpdateKernels kAvx2Updates = make_updates<Avx2>();

}  // namespace ddp
