// SPDX-License-Identifier: Apache-2.0
#include "core/callback.hpp"

#include <dlfcn.h>

namespace ddp {
namespace {

using Globals = abi::__cxa_eh_globals*(void);

/// Of this thread, in one runtime; its location is defined by the C++ ABI for all compilers.
unsigned& count_of(Globals& globals) noexcept {
  return *reinterpret_cast<unsigned*>(reinterpret_cast<void**>(globals()) + 1);
}

/// The runtime of the program, or NULL.
Globals* globals_of_program() noexcept {
  constexpr const char* kName = "__cxa_get_globals";
  void* found = dlsym(RTLD_DEFAULT, kName);
  if (found == nullptr)
    if (void* const runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD)) {  // of a host that keeps it to itself
      found = dlsym(runtime, kName);
      dlclose(runtime);  // it stays: the program has it
    }
  return reinterpret_cast<Globals*>(found);
}

}  // namespace

ExceptionCount::ExceptionCount() noexcept : before_(count_of(abi::__cxa_get_globals)) {}

void ExceptionCount::caught() const noexcept {
  unsigned& ours = count_of(abi::__cxa_get_globals);
  if (ours == before_) return;  // thrown by the same runtime
  ours = before_;
  if (Globals* const theirs = globals_of_program(); theirs != nullptr && count_of(*theirs) > 0) --count_of(*theirs);
}

}  // namespace ddp
