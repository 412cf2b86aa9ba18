// SPDX-License-Identifier: Apache-2.0
// Processes of this machine: ranks, or one for each machine of a job.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "ddprun/fd.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/orders.hpp"
#include "ddprun/relay.hpp"
#include "ddprun/report.hpp"

namespace ddp::ddprun {

// Who runs the processes of a job: this machine, or other machines through the ddpruns that are led there. The supervisor
// thinks in ranks and need not know which.
class Crew {
 public:
  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  virtual ~Crew() = default;

  /// Start these, the first time or once more; what an ended one has left running ends first. Throws if that fails.
  virtual void start(const std::vector<int32_t>& ranks, Start how) = 0;
  /// Those that have ended since the last call; `rank`, `status`, `lost`, `peak_kib`.
  [[nodiscard]] virtual std::vector<Outcome> collect() = 0;
  /// SIGKILL to whatever was started on this machine.
  virtual void let_go() noexcept = 0;
  /// No rank will be started any more, and none runs.
  virtual void finish() {}
  /// End what is left.
  virtual void end() noexcept = 0;
  [[nodiscard]] virtual std::deque<std::string> last_lines(int32_t rank) const = 0;
};

// A helper process that ends all ranks, with their own children, should ddprun be killed (SIGKILL, crash).
class Guard {
 public:
  /// Starts the helper. Call before the first rank, or the ranks inherit what keeps it quiet.
  Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  /// Ends the helper and waits for it.
  ~Guard();

  /// A process group to end should we die.
  void watch(pid_t group) noexcept;

 private:
  void send(pid_t value) noexcept;

  Fd pipe_;
  pid_t pid_ = -1;
};

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
