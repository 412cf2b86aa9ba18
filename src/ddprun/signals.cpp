// SPDX-License-Identifier: Apache-2.0
// A blocked signal is queued even when it is ignored, so ignored ones must not be blocked at all.
// Tested by process/ddprun_signals_test.sh.
#include "ddprun/signals.hpp"

#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace ddp::ddprun {
namespace {

// Passed on to the ranks, except SIGCHLD (a rank ended) and SIGTSTP (Ctrl-Z). USR1 and USR2: batch systems announce the end
// with them. WINCH: the terminal has another size.
constexpr int kHandled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGWINCH};

bool ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // ignored, the kernel would throw away how the ranks ended
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : kHandled) {
    if (!ignored(number)) sigaddset(&set, number);
  }
  pthread_sigmask(SIG_BLOCK, &set, &original_mask_);
  fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.open()) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No signal descriptor could be made: %s.", strerror(errno));
}

int Signals::take() noexcept {
  signalfd_siginfo info;
  ssize_t got = 0;
  do {
    got = read(fd_.get(), &info, sizeof info);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof info) ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace ddp::ddprun
