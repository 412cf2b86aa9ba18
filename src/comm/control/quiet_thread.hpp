// Start a thread of the library: it blocks every signal, so that the program's handlers never run on it and its own SIGPIPE,
// SIGALRM or Ctrl-C do not disturb it. Tested by process/control_test.cpp.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace ddp {

template <class Body>
[[nodiscard]] std::thread quiet_thread(const char* name, Body&& body) {
  struct Mask {
    sigset_t before{};
    Mask() noexcept {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Mask() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  };
  const Mask mask;  // the new thread inherits it
  std::thread thread(std::forward<Body>(body));
  pthread_setname_np(thread.native_handle(), name);  // at most 15 characters
  return thread;
}

}  // namespace ddp
