// SPDX-License-Identifier: Apache-2.0
// The helper reads a pipe whose only writer is ddprun: numbers of process groups, then 0 for "all is well". An end of file
// without the 0 means that ddprun has ended, whatever killed it, and every group gets SIGKILL.
// The ranks also have a parent-death signal (launch.cpp); the helper exists for processes that the ranks have started
// themselves. It is in a session of its own, so no Ctrl-C and no closing terminal reaches it. Tested by
// process/ddprun_orphans_test.sh.
#include "ddprun/guard.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "core/error.hpp"

namespace ddp::ddprun {
namespace {

[[noreturn]] void stand_guard(int input) {
  setsid();
  prctl(PR_SET_NAME, "ddprun-guard");
  if (chdir("/") != 0) _exit(1);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  // Nothing of ours may keep a pipe or a file of the user's open.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  dup2(input, 3);
  close_range(4, ~0U, 0);

  std::vector<pid_t> groups;
  for (;;) {
    pid_t value = 0;
    const ssize_t got = read(3, &value, sizeof value);
    if (got < 0 && errno == EINTR) continue;
    if (got == static_cast<ssize_t>(sizeof value) && value == 0) _exit(0);
    if (got != static_cast<ssize_t>(sizeof value)) break;
    groups.push_back(value);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Guard::Guard() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No pipe could be made: %s.", strerror(errno));
  const Fd input(ends[0]);
  pipe_ = Fd(ends[1]);
  pid_ = fork();
  if (pid_ < 0) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No process could be started: %s.", strerror(errno));
  if (pid_ == 0) {
    pipe_.reset();
    stand_guard(input.get());
  }
}

Guard::~Guard() {
  send(0);
  pipe_.reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::watch(pid_t group) noexcept { send(group); }

// Smaller than PIPE_BUF, so it arrives whole. A killed helper is no reason to stop: SIGPIPE is ignored here.
void Guard::send(pid_t value) noexcept {
  while (write(pipe_.get(), &value, sizeof value) < 0 && errno == EINTR) {
  }
}

}  // namespace ddp::ddprun
