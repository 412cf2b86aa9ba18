// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes on aarch64; binary16 is converted by the instructions that every ARMv8 has.
// Anonymous namespace: see vectors.hpp.
#pragma once

#include <arm_neon.h>

#include "device/cpu/conversions.hpp"

namespace ddp::cpu {
namespace {

struct Neon : PlainConversions<4> {
  static constexpr const char* kName = "neon";
  static constexpr int kWords = 4;

  [[gnu::always_inline]] static Float half_to_float(Short half) noexcept {
    return as<Float>(vcvt_f32_f16(as<float16x4_t>(half)));
  }
  [[gnu::always_inline]] static Short float_to_half(Float value) noexcept {
    return as<Short>(vcvt_f16_f32(as<float32x4_t>(value)));
  }
};

}  // namespace
}  // namespace ddp::cpu
