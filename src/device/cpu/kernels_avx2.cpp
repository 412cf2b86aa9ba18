// Vectors of 32 bytes; binary16 is converted by F16C. Built with -mavx2 -mf16c, run only where dispatch.cpp found both.
// Tested by unit/device/reduce_test.cpp and arrays_test.cpp.
#include <immintrin.h>

#include "device/cpu/make_kernels.hpp"

namespace ddp::cpu {
namespace {

struct Avx2 {
  static constexpr const char* kName = "avx2";
  static constexpr int kVectorBytes = 32;

  [[gnu::always_inline]] static Vec<float, 8> widen_half(Vec<uint16_t, 8> half) noexcept {
    return as<Vec<float, 8>>(_mm256_cvtph_ps(as<__m128i>(half)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 8> narrow_half(Vec<float, 8> value) noexcept {
    return as<Vec<uint16_t, 8>>(_mm256_cvtps_ph(as<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

constinit const Kernels kAvx2Kernels = make_kernels<Avx2>();

}  // namespace ddp::cpu
