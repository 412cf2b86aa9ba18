// SPDX-License-Identifier: Apache-2.0
// The supervisor of a job: one thread, one loop. supervise.cpp has its loop and phases, survive.cpp what follows when
// ranks fail.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/host_crew.hpp"
#include "ddprun/input.hpp"
#include "ddprun/join_files.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/lead.hpp"
#include "ddprun/local_crew.hpp"
#include "ddprun/loop.hpp"
#include "ddprun/observer.hpp"
#include "ddprun/relay.hpp"
#include "ddprun/report.hpp"
#include "ddprun/restarts.hpp"
#include "ddprun/signals.hpp"
#include "ddprun/story.hpp"
#include "ddprun/trace_file.hpp"
#include "os/clock.hpp"

namespace ddp::ddprun {

class Supervisor {
 public:
  explicit Supervisor(const Options& options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { end_everything(); }

  /// Returns the exit code of the job.
  int run();

 private:
  enum class Phase { kRunning, kGrace, kTerminated, kKilled, kDraining, kFlushing, kDone };

  // supervise.cpp
  void begin();
  [[nodiscard]] int stdin_of(int32_t process);
  void wait_once();
  void handle_lead(int signal);
  void handle_order(const Order& order);
  void handle_loss();
  void take_signals();
  void handle_signal(int signal);
  void signal_ranks(int signal);
  void advance();
  void on_deadline();
  void enter(Phase phase, int64_t for_ms);  // 0 ms: no limit
  void end_everything() noexcept;
  void observe();
  void look();
  void take_seen(int32_t host, const Report& report);
  void take_of_host(int32_t host, std::string_view text);
  [[nodiscard]] int64_t left_ms() const noexcept;

  // survive.cpp
  void start(const std::vector<int32_t>& ranks, Start how);
  void collect_ends();
  void tell_leader(const Outcome& outcome);
  void note_end(const Outcome& outcome);
  void on_failure(const Outcome& outcome);
  void decide();
  void rest_and_join(const std::vector<int32_t>& dead);
  void join_rested();
  void restart_all();
  void give_up_joining();
  void report();
  void observe_end(const Outcome& outcome);
  void save_report(const LastWords& words, const JobEnd& end);

  struct Status {
    std::vector<Outcome> outcomes;  // of the ranks that ended, in that order
    int32_t ranks = 0;
    [[nodiscard]] bool running(int32_t rank) const noexcept;
    [[nodiscard]] bool all_ended() const noexcept { return outcomes.size() == static_cast<size_t>(ranks); }
    [[nodiscard]] std::vector<int32_t> running_ranks() const;
    [[nodiscard]] std::vector<int32_t> failed_ranks() const;
  };
  [[nodiscard]] std::string running_ranks() const { return names_.list(status_.running_ranks()); }
  [[nodiscard]] double seconds() const noexcept { return static_cast<double>(os::now_ns() - course_.begun_ns) * 1e-9; }

  Loop loop_;
  const Options& options_;
  Signals signals_;
  Job job_;
  Names names_;  // of the ranks, or of machines that are led as a whole
  Relay relay_;
  Observer observer_;
  TraceFile trace_;
  struct Inputs {
    Input rank_zero;
    Leads leads;  // of the machines that we have started
    Leash leash;  // of the ddprun that has started us
    JoinFiles join_files;
    Ready signalled;
    bool over = false;  // the one that leads us has said that no rank will be started any more
  } inputs_;
  struct Crews {
    LocalCrew local;
    std::unique_ptr<HostCrew> hosts;
    [[nodiscard]] Crew& main() noexcept { return hosts != nullptr ? static_cast<Crew&>(*hosts) : local; }
  } crews_;
  struct Now {
    Phase phase = Phase::kRunning;
    os::Deadline deadline = os::Deadline::never();
  } now_;
  struct Course {
    int64_t begun_ns = os::now_ns();
    int64_t oom_kills = -1;
    int exit_code = 0;
    Story story{};
  } course_;
  struct Stop {
    int requests = 0;        // signals that ask us to stop
    int signal = 0;          // the first of them, if it came before any failure
    bool timed_out = false;  // --timeout ended the job
  } stop_;
  PendingRestart restart_;
  Status status_;
};

}  // namespace ddp::ddprun
