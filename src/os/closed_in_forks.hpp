// SPDX-License-Identifier: Apache-2.0
// A connection tells the other side that this process has ended, unless a fork of it lives on and keeps the connection open.
// So every fork closes those that are noted here.
// Threads: any.
// Tested by unit/os/closed_in_forks_test.cpp.
#pragma once

#include <unistd.h>

#include "os/in_forks.hpp"

namespace ddp::os {

/// While it lives, fork() closes the descriptor in the child. One that is made by other means (_Fork, clone) keeps it.
class ClosedInForks final : public InForks<ClosedInForks> {
 public:
  explicit ClosedInForks(int fd) noexcept : fd_(fd) { note(*this); }
  ~ClosedInForks() { forget(); }

  /// Before the descriptor is closed.
  void forget() noexcept {
    if (fd_ < 0) return;
    InForks::forget(*this);
    fd_ = -1;
  }

  static void in_the_fork(const ClosedInForks* first) noexcept {
    for (const ClosedInForks* each = first; each != nullptr; each = each->next()) ::close(each->fd_);
  }

 private:
  int fd_;
};

}  // namespace ddp::os
