// SPDX-License-Identifier: Apache-2.0
// What the library does when the process ends by exit(), or by a return from main. A fork does not do it for its parent.
//
// Handlers of exit() run in the reverse of the order in which they were set up. The library's is set up again after each
// library that was opened, because that may have handlers of its own, which take it down: ours runs before them. It runs on
// a thread of its own, and exit() waits for it for 5 s at most, because exit() may have been called anywhere: in a function
// that the library has called, in a signal handler, on a thread of the library.
// The state is process-wide, as exit() is.
// Threads: any.
// Tested by unit/os/at_exit_test.cpp.
#pragma once

namespace ddp::os {

/// `what` runs in exit(), once; it throws nothing. The first call in a process counts.
void at_exit(void (*what)()) noexcept;

/// A library was opened, or used for the first time: what at_exit() was given runs before its handlers. Nothing if
/// at_exit() was not called yet.
void be_first_at_exit() noexcept;

/// As long as it lives exit() waits, 5 s at most: this thread is inside a library that exit() takes down.
class HoldExit {
 public:
  HoldExit() noexcept;
  ~HoldExit();
  HoldExit(const HoldExit&) = delete;
  HoldExit& operator=(const HoldExit&) = delete;
  /// False: exit() has proceeded, so such a library must not be called any more.
  [[nodiscard]] explicit operator bool() const noexcept { return held_; }

 private:
  const bool held_;
};

}  // namespace ddp::os
