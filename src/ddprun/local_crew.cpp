// SPDX-License-Identifier: Apache-2.0
// Ranks that ended stay zombies until they are started again or the job is over: so their process group numbers cannot be
// given to strangers, and processes that they left running can be ended safely.
// Tested by process/ddprun_test.sh, process/ddprun_orphans_test.sh, process/ddprun_restart_test.sh.
#include "ddprun/local_crew.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace ddp::ddprun {

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
