// SPDX-License-Identifier: Apache-2.0
// What UCX says about trouble while we call it. It would print that on the program's standard output; here it becomes the
// text of an error. Lines of other threads, and of a program that uses UCX itself, are printed as before, and with the
// variable UCX_LOG_LEVEL all of them.
// Tested by process/ucx_test.cpp.
#pragma once

#include <string>

namespace ddp::ucx {

/// From here on such lines are caught. Any number of times, any thread.
void catch_log();

/// While it lives, warnings and errors of this thread are kept and not printed.
class Quiet {
 public:
  Quiet() noexcept;
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

  /// The last of them, "" if there is none.
  [[nodiscard]] const char* last_line() const noexcept { return line_; }

 private:
  friend struct Catcher;
  Quiet* const outer_;
  char line_[256] = "";
};

}  // namespace ddp::ucx
