// SPDX-License-Identifier: Apache-2.0
// What must be so of an input that was accepted: else the program ends, which the fuzzer reports.
#pragma once

#include <cstdio>
#include <cstdlib>

inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "accepted, but not so: %s\n", what);
  std::abort();
}
