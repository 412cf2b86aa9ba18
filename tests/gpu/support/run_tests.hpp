// SPDX-License-Identifier: Apache-2.0
// Steps around every case. On the fake GPU (tests/support/fake_gpu) operations are delayed at random, and a case fails if
// anything raced or was used after its end.
#pragma once

#include "gpu/support/module.hpp"

namespace ddp::test::card {

/// A function that only the fake GPU has (support/fake_gpu/fake_gpu_control.h); NULL on a real one.
template <class Function>
Function* control(const char* name) {
  return is_fake() ? reinterpret_cast<Function*>(dlsym(module().library, name)) : nullptr;
}

inline int begin_anew(void**) {
  if (const auto reset = control<void(int32_t, uint64_t)>("ddp_fake_gpu_reset")) reset(8, 20);
  return 0;
}

inline int nothing_was_violated(void**) {
  const auto count = control<int64_t()>("ddp_fake_gpu_violations");
  const auto fetch = control<void(int64_t, char*, int64_t)>("ddp_fake_gpu_violation");
  if (count == nullptr || fetch == nullptr || count() == 0) return 0;
  char text[512];
  for (int64_t k = 0; k < std::min<int64_t>(count(), 5); ++k) {
    fetch(k, text, sizeof text);
    std::fprintf(stderr, "%s\n", text);
  }
  return -1;
}

/// In a test that does on purpose what the fake GPU counts as a violation.
inline void forgive_violations() {
  if (const auto clear = control<void()>("ddp_fake_gpu_clear_violations")) clear();
}

}  // namespace ddp::test::card

/// Watches the cases of this file, and does something before them: gpu_cases(need_devices(1));
#define gpu_cases(...)                                                                                \
  ddp_before_cases({                                                                                  \
    ddp::test::list_around_cases(ddp::test::card::begin_anew, ddp::test::card::nothing_was_violated); \
    __VA_ARGS__;                                                                                      \
  })
