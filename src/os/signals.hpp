// SPDX-License-Identifier: Apache-2.0
// Threads that the library starts take no signals: a signal belongs to the program. The mask is inherited, so it is blocked
// around the start of a thread and restored.
#pragma once

#include <csignal>

namespace ddp::os {

class BlockSignals {
 public:
  BlockSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace ddp::os
