// SPDX-License-Identifier: Apache-2.0
// What a process does about signals belongs to the program, also while a library is loaded that has handlers of its own.
// Tested by process/ucx_test.cpp.
#pragma once

#include <csignal>

namespace ddp::os {

/// What the program wants to be done about signals is the same afterwards, whatever a library that is loaded meanwhile does.
class KeepDispositions {
 public:
  KeepDispositions() noexcept {
    for (int signal = 1; signal < kSignals; ++signal) known_[signal] = sigaction(signal, nullptr, &before_[signal]) == 0;
  }
  ~KeepDispositions() {
    for (int signal = 1; signal < kSignals; ++signal) {
      struct sigaction now {};
      if (known_[signal] && sigaction(signal, nullptr, &now) == 0 && !is_same(now, before_[signal]))
        (void)sigaction(signal, &before_[signal], nullptr);
    }
  }
  KeepDispositions(const KeepDispositions&) = delete;
  KeepDispositions& operator=(const KeepDispositions&) = delete;

 private:
  static constexpr int kSignals = 32;
  [[nodiscard]] static bool is_same(const struct sigaction& a, const struct sigaction& b) noexcept {
    return a.sa_flags == b.sa_flags &&
           ((a.sa_flags & SA_SIGINFO) != 0 ? a.sa_sigaction == b.sa_sigaction : a.sa_handler == b.sa_handler);
  }
  struct sigaction before_[kSignals] {};
  bool known_[kSignals]{};
};

}  // namespace ddp::os
