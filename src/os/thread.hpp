// SPDX-License-Identifier: Apache-2.0
// Start a thread of the library: it blocks every signal, so that the program's handlers never run on it and its own SIGPIPE,
// SIGALRM or Ctrl-C do not disturb it. What it logs is about the same group as what the calling thread logs.
// Tested by process/control_test.cpp.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

#include "os/log.hpp"

namespace ddp::os {

/// No signal comes to this thread, nor to those that it starts, as long as the object lives.
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

/// Of the calling thread: true on those that start_thread() has made.
inline bool& is_library_thread() noexcept {
  thread_local bool is = false;
  return is;
}

template <class Body>
[[nodiscard]] std::thread start_thread(const char* name, Body&& body) {
  const BlockSignals blocked;  // the new thread inherits it
  std::thread thread([run = std::forward<Body>(body), about = log_about()]() mutable {
    is_library_thread() = true;
    log_about() = about;
    run();
  });
  pthread_setname_np(thread.native_handle(), name);  // at most 15 characters
  return thread;
}

}  // namespace ddp::os
