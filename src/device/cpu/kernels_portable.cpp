// Vectors of 16 bytes, which every 64-bit machine has in its basic instruction set; binary16 is converted in integers.
// Tested by unit/device/reduce_test.cpp and arrays_test.cpp.
#include "device/cpu/make_kernels.hpp"

namespace ddp::cpu {
namespace {

struct Portable {
  static constexpr const char* kName = "portable";
  static constexpr int kVectorBytes = 16;

  [[gnu::always_inline]] static Vec<float, 4> widen_half(Vec<uint16_t, 4> half) noexcept { return half_to_float<4>(half); }
  [[gnu::always_inline]] static Vec<uint16_t, 4> narrow_half(Vec<float, 4> value) noexcept { return float_to_half<4>(value); }
};

}  // namespace

constinit const Kernels kPortableKernels = make_kernels<Portable>();

}  // namespace ddp::cpu
