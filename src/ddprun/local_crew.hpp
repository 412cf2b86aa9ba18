// SPDX-License-Identifier: Apache-2.0
// Processes of this machine: ranks, or one for each machine of a job.
#pragma once

#include <sys/types.h>

#include <functional>

#include "ddprun/crew.hpp"
#include "ddprun/guard.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/relay.hpp"

namespace ddp::ddprun {

class LocalCrew final : public Crew {
 public:
  /// `input`: the stdin of a process, as launch_rank takes it.
  LocalCrew(const Job& job, Relay& relay, std::function<int(int32_t)> input)
      : job_(job), relay_(relay), input_(std::move(input)), processes_(static_cast<size_t>(job.ranks)) {}
  ~LocalCrew() override;

  void start(const std::vector<int32_t>& ranks, Start how) override;
  [[nodiscard]] std::vector<Outcome> collect() override;
  void let_go() noexcept override;
  void end() noexcept override;
  [[nodiscard]] std::deque<std::string> last_lines(int32_t rank) const override { return relay_.last_lines(rank); }

  /// Pass a signal on to all.
  void signal(int number) noexcept;
  /// Of a process; -1: it was never started.
  [[nodiscard]] pid_t pid(int32_t process) const noexcept { return processes_[static_cast<size_t>(process)].pid; }
  /// Was this one started, and has collect() not returned its end?
  [[nodiscard]] bool running(int32_t process) const noexcept;

 private:
  struct Process {
    pid_t pid = -1;
    bool ended = false;
  };
  void reap(Process& process) noexcept;

  const Job& job_;
  Relay& relay_;
  std::function<int(int32_t)> input_;
  Guard guard_;
  std::vector<Process> processes_;
};

}  // namespace ddp::ddprun
