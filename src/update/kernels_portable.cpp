// Vectors of 16 bytes, which every 64-bit machine has in its basic instruction set (also used where device/cpu says "neon").
// Built with -fno-math-errno, so that the square root is the machine's instruction.
// Tested by unit/update/kernels_test.cpp.
#include "update/kernel_loops.hpp"

namespace ddp {
namespace {

struct Portable {
  static constexpr const char* kName = "portable";
  static constexpr int kVectorBytes = 16;
  template <class T, int lanes>
  using Vec = cpu::Vec<T, lanes>;

  [[gnu::always_inline]] static Vec<float, 4> widen_half(Vec<uint16_t, 4> half) noexcept { return cpu::half_to_float<4>(half); }
  [[gnu::always_inline]] static Vec<uint16_t, 4> narrow_half(Vec<float, 4> value) noexcept { return cpu::float_to_half<4>(value); }
  [[gnu::always_inline]] static Vec<float, 4> root(Vec<float, 4> value) noexcept {
    return Vec<float, 4>{__builtin_sqrtf(value[0]), __builtin_sqrtf(value[1]), __builtin_sqrtf(value[2]),
                         __builtin_sqrtf(value[3])};
  }
  [[gnu::always_inline]] static Vec<double, 2> root(Vec<double, 2> value) noexcept {
    return Vec<double, 2>{__builtin_sqrt(value[0]), __builtin_sqrt(value[1])};
  }
};

}  // namespace

constinit const UpdateKernels kPortableUpdates = make_updates<Portable>();

}  // namespace ddp
