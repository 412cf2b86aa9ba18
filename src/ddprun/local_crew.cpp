// SPDX-License-Identifier: Apache-2.0
// Ranks that ended stay zombies until they are started again or the job is over: so their process group numbers cannot be
// given to strangers, and processes that they left running can be ended safely.
// Tested by process/ddprun_test.sh, process/ddprun_orphans_test.sh, process/ddprun_restart_test.sh.
#include "ddprun/local_crew.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

LocalCrew::~LocalCrew() { end(); }

void LocalCrew::start(const std::vector<int32_t>& ranks, Start how) {
  std::vector<std::string> extra;
  if (how.restarts > 0) extra.push_back("DDP_RESTARTS=" + std::to_string(how.restarts));
  if (how.joins) extra.emplace_back("DDP_JOIN=1");
  for (const int32_t rank : ranks) {
    Process& process = processes_[static_cast<size_t>(rank)];
    if (process.pid > 0) {
      kill(-process.pid, SIGKILL);
      reap(process);
    }
    Rank started = launch_rank(job_, rank, how.restarts == 0 ? input_(rank) : -1, extra);
    process = {started.pid};
    guard_.watch(started.pid);
    relay_.set_rank(rank, std::move(started.out), std::move(started.err));
  }
}

std::vector<Outcome> LocalCrew::collect() {
  std::vector<Outcome> ends;
  for (size_t rank = 0; rank < processes_.size(); ++rank) {
    siginfo_t info{};
    Process& process = processes_[rank];
    if (process.pid < 0 || process.ended) continue;
    // The system call, unlike the function, also tells what it has used.
    rusage usage{};
    const int flags = WEXITED | WNOHANG | WNOWAIT;
    if (syscall(SYS_waitid, P_PID, process.pid, &info, flags, &usage) != 0 || info.si_pid == 0) continue;
    process = {process.pid, true};
    Outcome outcome;
    outcome.rank = static_cast<int32_t>(rank);
    outcome.peak_kib = usage.ru_maxrss;
    outcome.status = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : info.si_status;
    ends.push_back(outcome);
  }
  return ends;
}

void LocalCrew::signal(int number) noexcept {
  for (const Process& process : processes_)
    if (process.pid > 0) kill(-process.pid, number);
}

void LocalCrew::let_go() noexcept { signal(SIGKILL); }

void LocalCrew::end() noexcept {
  let_go();
  for (Process& process : processes_) reap(process);
}

bool LocalCrew::running(int32_t process) const noexcept {
  const Process& asked = processes_[static_cast<size_t>(process)];
  return asked.pid > 0 && !asked.ended;
}

void LocalCrew::reap(Process& process) noexcept {
  if (process.pid <= 0) return;
  while (waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  process = {-1, true};
}

}  // namespace ddp::ddprun
