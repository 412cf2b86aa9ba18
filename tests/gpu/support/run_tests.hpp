// SPDX-License-Identifier: Apache-2.0
// The end of a main(): runs the tests, or those whose names match the pattern given as the first argument ("*bits*").
// On the fake GPU (tests/support/fake_gpu) operations are delayed at random, and a test fails if anything raced or
// was used after its end.
#pragma once

#include <algorithm>
#include <cstddef>

#include "gpu/support/module.hpp"
#include "support/cmocka.hpp"

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

template <size_t count>
int run_matching(const CMUnitTest (&tests)[count], int argc, char** argv) {
  CMUnitTest watched[count];
  for (size_t k = 0; k < count; ++k) {
    watched[k] = tests[k];
    watched[k].setup_func = begin_anew;
    watched[k].teardown_func = nothing_was_violated;
  }
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return _cmocka_run_group_tests(argv[0], watched, count, nullptr, nullptr);
}

}  // namespace ddp::test::card
