// SPDX-License-Identifier: Apache-2.0
// Threads of the library in this process, by their names ("ddp-...").
#pragma once

#include "support/check.hpp"

namespace ddp::test {

/// Names of those that live, with a space behind each.
inline std::string library_threads() {
  std::string names;
  std::error_code gone;  // a thread may end while this looks
  for (std::filesystem::directory_iterator at("/proc/self/task", gone), end; !gone && at != end; at.increment(gone)) {
    std::string name;
    std::ifstream(at->path() / "comm") >> name;
    if (name.rfind("ddp-", 0) == 0) names += name + " ";
  }
  return names;
}

/// All have ended by then.
inline void expect_no_library_threads(const std::string& what, int64_t limit_ms = 5000) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  std::string names = library_threads();
  while (!names.empty() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    names = library_threads();
  }
  expect(names.empty(), what + " leaves threads: " + names);
}

}  // namespace ddp::test
