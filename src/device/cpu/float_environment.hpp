// The floating-point environment of the standard while it lives: round to nearest, subnormal numbers kept, nothing trapped.
// Programs built with -ffast-math, and some frameworks, flush subnormal numbers to zero on their own threads; without this
// guard the bits of a sum would depend on the thread that formed it. Costs a few cycles where nothing is to be changed.
// Tested by unit/device/reduce_test.cpp.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ddp::cpu {

class StandardFloats {
 public:
  StandardFloats() noexcept : saved_(read()) {
    if ((saved_ & kControl) != kStandard) write(kStandard);
  }
  ~StandardFloats() {
    if ((saved_ & kControl) != kStandard) write(saved_);
  }
  StandardFloats(const StandardFloats&) = delete;
  StandardFloats& operator=(const StandardFloats&) = delete;

 private:
#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word kControl = 0xffc0;  // all but the sticky flags
  static constexpr Word kStandard = 0x1f80;
  static Word read() noexcept { return _mm_getcsr(); }
  static void write(Word word) noexcept { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kControl = ~Word{0};
  static constexpr Word kStandard = 0;
  static Word read() noexcept {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) noexcept { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = uint32_t;
  static constexpr Word kControl = 0;
  static constexpr Word kStandard = 0;
  static Word read() noexcept { return 0; }
  static void write(Word) noexcept {}
#endif
  Word saved_;
};

}  // namespace ddp::cpu
