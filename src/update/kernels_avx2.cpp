// Vectors of 32 bytes. Built with -mavx2 -mf16c, run only where device/cpu/dispatch.cpp found both.
// Tested by unit/update/kernels_test.cpp.
#include <immintrin.h>

#include "update/kernel_loops.hpp"

namespace ddp {
namespace {

struct Avx2 {
  static constexpr const char* kName = "avx2";
  static constexpr int kVectorBytes = 32;
  template <class T, int lanes>
  using Vec = cpu::Vec<T, lanes>;

  [[gnu::always_inline]] static Vec<float, 8> widen_half(Vec<uint16_t, 8> half) noexcept {
    return cpu::as<Vec<float, 8>>(_mm256_cvtph_ps(cpu::as<__m128i>(half)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 8> narrow_half(Vec<float, 8> value) noexcept {
    return cpu::as<Vec<uint16_t, 8>>(_mm256_cvtps_ph(cpu::as<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
  }
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
