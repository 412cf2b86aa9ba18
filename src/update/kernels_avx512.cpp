// Vectors of 64 bytes. Built with -mavx512{f,bw,vl,dq}, run only where device/cpu/dispatch.cpp found all four.
// Tested by unit/update/kernels_test.cpp.
#include <immintrin.h>

#include "update/kernel_loops.hpp"

namespace ddp {
namespace {

struct Avx512 {
  static constexpr const char* kName = "avx512";
  static constexpr int kVectorBytes = 64;
  // The forms with a full mask compile to the plain instruction; GCC 12's plain forms warn of an uninitialised value.
  static constexpr __mmask16 kAll = 0xffff;
  template <class T, int lanes>
  using Vec = cpu::Vec<T, lanes>;

  [[gnu::always_inline]] static Vec<float, 16> widen_half(Vec<uint16_t, 16> half) noexcept {
    return cpu::as<Vec<float, 16>>(_mm512_maskz_cvtph_ps(kAll, cpu::as<__m256i>(half)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 16> narrow_half(Vec<float, 16> value) noexcept {
    return cpu::as<Vec<uint16_t, 16>>(_mm512_maskz_cvtps_ph(kAll, cpu::as<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static Vec<float, 16> root(Vec<float, 16> value) noexcept {
    return cpu::as<Vec<float, 16>>(_mm512_maskz_sqrt_ps(kAll, cpu::as<__m512>(value)));
  }
  [[gnu::always_inline]] static Vec<double, 8> root(Vec<double, 8> value) noexcept {
    return cpu::as<Vec<double, 8>>(_mm512_maskz_sqrt_pd(0xff, cpu::as<__m512d>(value)));
  }
};

}  // namespace

constinit const UpdateKernels kAvx512Updates = make_updates<Avx512>();

}  // namespace ddp
