// SPDX-License-Identifier: Apache-2.0
// Start a thread of the library: it blocks every signal, so that the program's handlers never run on it and its own SIGPIPE,
// SIGALRM or Ctrl-C do not disturb it.
// Tested by process/control_test.cpp.
#pragma once

#include <pthread.h>

#include <thread>
#include <utility>

#include "os/signals.hpp"

namespace ddp::os {

template <class Body>
[[nodiscard]] std::thread start_thread(const char* name, Body&& body) {
  const BlockSignals blocked;  // the new thread inherits it
  std::thread thread(std::forward<Body>(body));
  pthread_setname_np(thread.native_handle(), name);  // at most 15 characters
  return thread;
}

}  // namespace ddp::os
