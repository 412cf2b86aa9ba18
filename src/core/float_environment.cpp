// SPDX-License-Identifier: Apache-2.0
#include "core/float_environment.hpp"

#include <utility>

namespace ddp {
namespace {

constinit thread_local const StandardFloats* innermost = nullptr;  // of those that changed something

}  // namespace

void floats::make_standard() noexcept {
  std::fesetenv(FE_DFL_ENV);
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);  // subnormal numbers too, which some C libraries leave as they were
#endif
}

void StandardFloats::enter() noexcept {
  std::fegetenv(&saved_);
  floats::make_standard();
  entered_ = true;
  outer_ = std::exchange(innermost, this);
}

void StandardFloats::leave() const noexcept {
  std::fesetenv(&saved_);
  innermost = outer_;
}

ProgramFloats::ProgramFloats() noexcept : inside_(innermost), standard_(floats::is_standard()) {
  if (inside_ == nullptr) return;
  std::fesetenv(&inside_->saved_);
  innermost = nullptr;  // a call from here is a call of the program
}

ProgramFloats::~ProgramFloats() {
  if (standard_ && !floats::is_standard()) floats::make_standard();
  innermost = inside_;
}

}  // namespace ddp
