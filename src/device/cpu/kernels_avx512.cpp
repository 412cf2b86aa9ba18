// Vectors of 64 bytes. Built with -mavx512{f,bw,vl,dq}, run only where dispatch.cpp found all four.
// Tested by unit/device/reduce_test.cpp and arrays_test.cpp.
#include <immintrin.h>

#include "device/cpu/make_kernels.hpp"

namespace ddp::cpu {
namespace {

struct Avx512 {
  static constexpr const char* kName = "avx512";
  static constexpr int kVectorBytes = 64;
  // The forms with a full mask compile to the plain instruction; GCC 12's plain forms warn of an uninitialised value.
  static constexpr __mmask16 kAll = 0xffff;

  [[gnu::always_inline]] static Vec<float, 16> widen_half(Vec<uint16_t, 16> half) noexcept {
    return as<Vec<float, 16>>(_mm512_maskz_cvtph_ps(kAll, as<__m256i>(half)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 16> narrow_half(Vec<float, 16> value) noexcept {
    return as<Vec<uint16_t, 16>>(_mm512_maskz_cvtps_ph(kAll, as<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

constinit const Kernels kAvx512Kernels = make_kernels<Avx512>();

}  // namespace ddp::cpu
