// SPDX-License-Identifier: Apache-2.0
// A connection tells the other side that this process has ended, unless a fork of it lives on and keeps the connection open.
// So every fork closes those that are noted here.
// Cost: a lock to note and to forget; fork() waits for it.
// Threads: any.
// Tested by unit/os/closed_in_forks_test.cpp.
#pragma once

namespace ddp::os {

/// While it lives, fork() closes the descriptor in the child. One that is made by other means (_Fork, clone) keeps it.
class ClosedInForks {
 public:
  explicit ClosedInForks(int fd) noexcept;
  ~ClosedInForks() { forget(); }
  ClosedInForks(const ClosedInForks&) = delete;
  ClosedInForks& operator=(const ClosedInForks&) = delete;

  /// Before the descriptor is closed.
  void forget() noexcept;

 private:
  friend struct ForkList;
  int fd_;
  ClosedInForks* before_ = nullptr;
  ClosedInForks* after_ = nullptr;
};

}  // namespace ddp::os
