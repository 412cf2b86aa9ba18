// SPDX-License-Identifier: Apache-2.0
// The floating-point environment of the standard while it lives: round to nearest, subnormal numbers kept, nothing trapped.
// Fortran programs and debuggers of numbers trap on NaN and infinity (feenableexcept, -ffpe-trap), programs built with
// -ffast-math flush subnormal numbers to zero. Neither may end a library call or change its bits, so the C boundary holds
// one of these for each call (capi/guard.hpp). A few calls are so short that reading the control register would be most of
// their time (10 ns on some machines): they hold none, and what computes in them holds its own (device/cpu/reduce,
// exchange/progress_queue, pass/pass).
// Threads of the library are made inside such a call and inherit its environment. The program's own functions get the
// program's environment back for as long as they run (callback.hpp).
// Cost: reading one control register where nothing is to be changed.
// Threads: each its own.
// Tested by unit/core/float_environment_test.cpp and capi/float_environment_test.cpp.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ddp {

namespace floats {

#if defined(__x86_64__)
inline bool is_standard() noexcept { return (_mm_getcsr() & 0xffc0U) == 0x1f80U; }  // all but the sticky flags
#elif defined(__aarch64__)
inline bool is_standard() noexcept {
  uint64_t word;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  return word == 0;
}
#else
inline bool is_standard() noexcept { return true; }
#endif

/// All of it is set, the sticky flags and (on x86) the old unit for 80 bits too.
void make_standard() noexcept;

}  // namespace floats

class StandardFloats {
 public:
  StandardFloats() noexcept {
    if (!floats::is_standard()) enter();
  }
  ~StandardFloats() {
    if (entered_) leave();
  }
  StandardFloats(const StandardFloats&) = delete;
  StandardFloats& operator=(const StandardFloats&) = delete;

 private:
  friend class ProgramFloats;
  void enter() noexcept;
  void leave() const noexcept;

  bool entered_ = false;
  std::fenv_t saved_;  // the program's, if entered
  const StandardFloats* outer_;
};

/// Inside a library call: the environment that the program made the call with, until this ends.
class ProgramFloats {
 public:
  ProgramFloats() noexcept;
  ~ProgramFloats();
  ProgramFloats(const ProgramFloats&) = delete;
  ProgramFloats& operator=(const ProgramFloats&) = delete;

 private:
  const StandardFloats* inside_;
  bool standard_;  // at the beginning
};

}  // namespace ddp
