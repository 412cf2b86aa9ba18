// SPDX-License-Identifier: Apache-2.0
// Vectors of 32 bytes; binary16 is converted by F16C. Only for files built with -mavx2 -mf16c, which run only where
// dispatch.cpp found both. Anonymous namespace: see vectors.hpp.
#pragma once

#include <immintrin.h>

#include "device/cpu/conversions.hpp"

namespace ddp::cpu {
namespace {

struct Avx2 : PlainConversions<8> {
  static constexpr const char* kName = "avx2";
  static constexpr int kWords = 8;

  [[gnu::always_inline]] static Bits widen(Short v) noexcept { return as<Bits>(_mm256_cvtepu16_epi32(as<__m128i>(v))); }
  [[gnu::always_inline]] static Short narrow(Bits v) noexcept {
    const __m256i wide = as<__m256i>(v);
    return as<Short>(_mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
  }
  [[gnu::always_inline]] static Vec<double, 4> to_double(Vec<float, 4> v) noexcept {
    return as<Vec<double, 4>>(_mm256_cvtps_pd(as<__m128>(v)));
  }
  [[gnu::always_inline]] static Vec<float, 4> to_float(Vec<double, 4> v) noexcept {
    return as<Vec<float, 4>>(_mm256_cvtpd_ps(as<__m256d>(v)));
  }
  [[gnu::always_inline]] static Float half_to_float(Short half) noexcept {
    return as<Float>(_mm256_cvtph_ps(as<__m128i>(half)));
  }
  [[gnu::always_inline]] static Short float_to_half(Float value) noexcept {
    return as<Short>(_mm256_cvtps_ph(as<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace
}  // namespace ddp::cpu
