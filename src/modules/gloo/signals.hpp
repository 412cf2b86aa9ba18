// SPDX-License-Identifier: Apache-2.0
// Signals around calls into Gloo, which knows nothing of them: it writes to sockets without MSG_NOSIGNAL, on its own thread
// and on the caller's, and its thread takes whatever signals its creator took. The process's dispositions are never changed.
// Tested by process/gloo_test.cpp.
#pragma once

#include <signal.h>

namespace ddp::gloo {

/// No signal reaches this thread, nor threads that are made meanwhile and keep their creator's mask.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() noexcept;
  ~AllSignalsBlocked();
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// A SIGPIPE that this thread causes meanwhile vanishes; one that was pending before stays.
class NoSigpipe {
 public:
  NoSigpipe() noexcept;
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace ddp::gloo
