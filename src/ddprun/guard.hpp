// SPDX-License-Identifier: Apache-2.0
// A helper process that ends all ranks, with their own children, should ddprun be killed (SIGKILL, crash).
#pragma once

#include <sys/types.h>

#include "ddprun/fd.hpp"

namespace ddp::ddprun {

class Guard {
 public:
  /// Starts the helper. Call before the first rank, or the ranks inherit what keeps it quiet.
  Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  /// Ends the helper and waits for it.
  ~Guard();

  /// A process group to end should we die.
  void watch(pid_t group) noexcept;

 private:
  void send(pid_t value) noexcept;

  Fd pipe_;
  pid_t pid_ = -1;
};

}  // namespace ddp::ddprun
