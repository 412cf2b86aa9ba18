// Vectors of 16 bytes on aarch64; binary16 is converted by the instructions that every ARMv8 has. Built there only.
// Tested by unit/device/reduce_test.cpp and arrays_test.cpp.
#include <arm_neon.h>

#include "device/cpu/make_kernels.hpp"

namespace ddp::cpu {
namespace {

struct Neon {
  static constexpr const char* kName = "neon";
  static constexpr int kVectorBytes = 16;

  [[gnu::always_inline]] static Vec<float, 4> widen_half(Vec<uint16_t, 4> half) noexcept {
    return as<Vec<float, 4>>(vcvt_f32_f16(as<float16x4_t>(half)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 4> narrow_half(Vec<float, 4> value) noexcept {
    return as<Vec<uint16_t, 4>>(vcvt_f16_f32(as<float32x4_t>(value)));
  }
};

}  // namespace

constinit const Kernels kNeonKernels = make_kernels<Neon>();

}  // namespace ddp::cpu
