// SPDX-License-Identifier: Apache-2.0
// The standard's floating-point environment for a while, the program's inside it, and everything as it was afterwards.
#include "core/float_environment.hpp"

#include "support/check.hpp"

volatile double zero = 0, tiny = 0x1p-1074;

/// A program's own, which no library would choose.
class Unusual {
 public:
  Unusual() {
    std::fegetenv(&before_);
    std::feclearexcept(FE_ALL_EXCEPT);
    std::fesetround(FE_DOWNWARD);
    feenableexcept(FE_DIVBYZERO | FE_INVALID);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040U);
#endif
  }
  ~Unusual() { std::fesetenv(&before_); }
  Unusual(const Unusual&) = delete;

  static bool is_there() {
    bool there = std::fegetround() == FE_DOWNWARD && (feenableexcept(0) == (FE_DIVBYZERO | FE_INVALID));
#if defined(__x86_64__)
    there = there && (_mm_getcsr() & 0x8040U) == 0x8040U;
#endif
    return there;
  }

 private:
  std::fenv_t before_;
};

void expect_standard(const char* when) {
  expect(floats::is_standard() && std::fegetround() == FE_TONEAREST && fegetexcept() == 0, when);
  expect(tiny * 2 == 0x1p-1073 && 1 / zero > 0 && zero / zero != 0, std::string(when) + ": arithmetic");
}

ddp_case(a_guard_gives_the_standard_and_then_the_programs_own) {
  const Unusual program;
  {
    const StandardFloats guard;
    expect_standard("in the guard");
    {
      const StandardFloats inner;
      expect_standard("in a guard in the guard");
    }
    expect_standard("after the inner guard");
  }
  expect(Unusual::is_there(), "the program's settings afterwards");
  expect(std::fetestexcept(FE_ALL_EXCEPT) == 0, "no flag is left of what was computed");
}

ddp_case(the_programs_functions_get_its_own) {
  const Unusual program;
  const StandardFloats guard;
  {
    const ProgramFloats callback;
    expect(Unusual::is_there(), "in a function of the program");
    {
      const StandardFloats call;
      expect_standard("in a call from there");
      {
        const ProgramFloats again;
        expect(Unusual::is_there(), "in a function that this call calls");
      }
      expect_standard("after that function");
    }
    expect(Unusual::is_there(), "after the call");
  }
  expect_standard("after the function");
}

ddp_case(a_function_that_leaves_other_settings_changes_nothing) {
  const StandardFloats guard;
  {
    const ProgramFloats callback;
    std::fesetround(FE_UPWARD);
  }
  expect_standard("after the function");
}

/// As the log does in a call that is too short for a guard.
ddp_case(a_function_that_is_called_without_a_guard_finds_and_leaves_the_programs_own) {
  const Unusual program;
  {
    const ProgramFloats callback;
    expect(Unusual::is_there(), "in the function");
  }
  expect(Unusual::is_there(), "after the function");
}

ddp_case(threads_inherit_the_standard) {
  const Unusual program;
  const StandardFloats guard;
  bool standard = false;
  std::thread([&standard] { standard = floats::is_standard() && fegetexcept() == 0; }).join();
  expect(standard, "a thread that is made inside");
}

ddp_before_cases({
  if (feenableexcept(FE_DIVBYZERO) == -1) std::exit(77);  // a machine that cannot trap
  fedisableexcept(FE_ALL_EXCEPT);
});
