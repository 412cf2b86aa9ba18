// SPDX-License-Identifier: Apache-2.0
// Vectors of 64 bytes. Only for files built with -mavx512{f,bw,vl,dq}, which run only where dispatch.cpp found all four.
// Anonymous namespace: see vectors.hpp.
#pragma once

#include <immintrin.h>

#include "device/cpu/conversions.hpp"

namespace ddp::cpu {
namespace {

struct Avx512 : PlainConversions<16> {
  static constexpr const char* kName = "avx512";
  static constexpr int kWords = 16;
  // The forms with a full mask compile to the plain instruction; GCC 12's plain forms warn of an uninitialised value.
  static constexpr __mmask16 kAll = 0xffff;
  static constexpr __mmask8 kAllDoubles = 0xff;

  [[gnu::always_inline]] static Bits widen(Short v) noexcept {
    return as<Bits>(_mm512_maskz_cvtepu16_epi32(kAll, as<__m256i>(v)));
  }
  [[gnu::always_inline]] static Short narrow(Bits v) noexcept {
    return as<Short>(_mm512_maskz_cvtepi32_epi16(kAll, as<__m512i>(v)));
  }
  [[gnu::always_inline]] static Vec<double, 8> to_double(Vec<float, 8> v) noexcept {
    return as<Vec<double, 8>>(_mm512_maskz_cvtps_pd(kAllDoubles, as<__m256>(v)));
  }
  [[gnu::always_inline]] static Vec<float, 8> to_float(Vec<double, 8> v) noexcept {
    return as<Vec<float, 8>>(_mm512_maskz_cvtpd_ps(kAllDoubles, as<__m512d>(v)));
  }
  [[gnu::always_inline]] static Float half_to_float(Short half) noexcept {
    return as<Float>(_mm512_maskz_cvtph_ps(kAll, as<__m256i>(half)));
  }
  [[gnu::always_inline]] static Short float_to_half(Float value) noexcept {
    return as<Short>(_mm512_maskz_cvtps_ph(kAll, as<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace
}  // namespace ddp::cpu
