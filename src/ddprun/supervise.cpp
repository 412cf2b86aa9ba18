// One thread, one poll(): the signals (as a descriptor), the outputs of all ranks, our own outputs, and the next deadline.
//
//   running -> grace (a rank failed; libddp tells the other ranks, which may save and exit)
//           -> terminated (SIGTERM was sent) -> killed (SIGKILL was sent)
//   running -> terminated when we get SIGTERM, or --timeout is over
//   any of these -> draining (no rank runs; last output) -> flushing (the report is written) -> done
//
// Ranks that ended stay zombies until the job is over: so their process group numbers cannot be given to strangers, and
// what they left running can be ended safely.
// Tested by process/ddprun_test.sh, ddprun_failure_test.sh, ddprun_signals_test.sh, ddprun_orphans_test.sh.
#include "ddprun/supervise.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "core/error.hpp"
#include "ddprun/guard.hpp"
#include "ddprun/input.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/lead.hpp"
#include "ddprun/machine.hpp"
#include "ddprun/relay.hpp"
#include "ddprun/report.hpp"
#include "ddprun/restarts.hpp"
#include "ddprun/signals.hpp"
#include "os/clock.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kTerminateMs = 5'000;  // from SIGTERM to SIGKILL
constexpr int64_t kDrainMs = 1'000;      // for what a rank left behind to write its last lines
constexpr int64_t kLastWordsMs = 2'000;  // from SIGKILL until a machine that does not answer is given up
constexpr int64_t kWakeMs = 1'000;       // now and then, for a terminal whose foreground job we have become again

int64_t to_ms(double seconds) { return static_cast<int64_t>(seconds * 1e3) + 1; }

class Supervisor {
 public:
  explicit Supervisor(const Options& options)
      : options_(options),
        job_(options.machines.hosts.empty() ? prepare_job(options, signals_.original_mask())
                                            : prepare_hosts(options, signals_.original_mask())),
        relay_(options),
        inputs_{{}, Leads(options.machines.silence_s), Leash(options.machines.led, options.machines.silence_s)} {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { end_everything(); }

  int run() {
    start();
    while (phase_ != Phase::kDone) {
      wait_once();
      advance();
    }
    return exit_code_;
  }

 private:
  enum class Phase { kRunning, kGrace, kTerminated, kKilled, kDraining, kFlushing, kDone };

  void start();
  [[nodiscard]] int stdin_of(int32_t process);
  void handle_lead(int signal);
  void wait_once();
  void handle_signal(int signal);
  void collect_ends();
  void on_failure(const Outcome& outcome);
  void plan_restart(const Outcome& outcome);
  void restart();
  void restart_all();
  void replace(int32_t rank, bool joins);
  void reap(size_t rank) noexcept;
  [[nodiscard]] bool only_joining() const noexcept;
  void advance();
  void on_deadline();
  void enter(Phase phase, int64_t for_ms);  // 0 ms: no limit
  void end_everything() noexcept;
  void report();
  void signal_groups(int signal) noexcept;
  [[nodiscard]] bool running(int32_t rank) const noexcept;
  [[nodiscard]] int64_t left_ms() const noexcept;
  [[nodiscard]] std::string running_ranks() const;
  [[nodiscard]] double seconds() const noexcept { return static_cast<double>(os::now_ns() - start_.ns) * 1e-9; }

  const Options& options_;
  Signals signals_;
  Job job_;
  Relay relay_;
  struct Inputs {
    Input rank_zero;
    Leads leads;  // of the machines that we have started
    Leash leash;  // of the ddprun that has started us
  } inputs_;
  Guard guard_;
  Phase phase_ = Phase::kRunning;
  os::Deadline deadline_ = os::Deadline::never();
  struct Start {
    int64_t ns = os::now_ns();
    int64_t oom_kills = count_oom_kills();
  } start_;
  struct Stop {
    int requests = 0;        // signals that ask us to stop
    int signal = 0;          // the first of them, if it came before any failure
    bool timed_out = false;  // --timeout ended the job
  } stop_;
  PendingRestart restart_{Restarts(options_)};
  int exit_code_ = 0;
  std::vector<pid_t> pids_;        // by rank; empty again once they are reaped
  std::vector<Outcome> outcomes_;  // of the ranks that ended, in that order
  std::vector<pollfd> entries_;
};

void Supervisor::start() {
  if (options_.verbose) relay_.note(job_.notes);
  if (!job_.threads.empty()) relay_.note(job_.threads);
  if (options_.timeout_s > 0) enter(Phase::kRunning, to_ms(options_.timeout_s));
  for (int32_t rank = 0; rank < job_.ranks; ++rank) {
    Rank started = launch_rank(job_, rank, stdin_of(rank));
    pids_.push_back(started.pid);
    guard_.watch(started.pid);
    relay_.add_rank(std::move(started.out), std::move(started.err));
  }
  restart_.joins.resize(pids_.size());
  inputs_.rank_zero.started();
  inputs_.leads.started();
}

/// Rank 0 gets ours, but where a ddprun elsewhere leads; machines are led.
int Supervisor::stdin_of(int32_t process) {
  if (!job_.commands.empty()) return inputs_.leads.add(job_.header);
  return job_.names.first + process == 0 && !options_.machines.led ? inputs_.rank_zero.for_rank_zero() : -1;
}

void Supervisor::wait_once() {
  entries_.clear();
  entries_.push_back({signals_.fd(), POLLIN, 0});
  inputs_.leash.append_poll(entries_);
  inputs_.rank_zero.append_poll(entries_);
  relay_.append_poll(entries_);
  const int ready = poll(entries_.data(), entries_.size(), static_cast<int>(left_ms()));
  if (ready < 0 && errno != EINTR) throw make_error(DDP_ERROR_INTERNAL, "poll failed: %s.", strerror(errno));
  if (ready > 0) {
    for (int signal = signals_.take(); signal != 0; signal = signals_.take()) handle_signal(signal);
    if (inputs_.rank_zero.handle(&entries_[2])) relay_.typed_line();
    relay_.handle(&entries_[4]);
  }
  inputs_.leash.handle(
      entries_[1], [this](int signal) { handle_lead(signal); },
      [this] {
        relay_.note("the connection to the ddprun that started this one is gone");
        handle_signal(SIGTERM);
      });
  inputs_.leads.beat();
  relay_.show_open_lines();
}

int64_t Supervisor::left_ms() const noexcept {
  int64_t left = std::min({deadline_.left_ms(), restart_.due.left_ms(), kWakeMs});
  const int64_t due = relay_.due_ns();
  if (due != Screen::kNever) left = std::min(left, std::max<int64_t>(due - os::now_ns(), 0) / 1'000'000 + 1);
  return left;
}

void Supervisor::handle_signal(int signal) {
  if (signal == SIGCHLD) return collect_ends();
  if (signal == SIGTSTP) {  // Ctrl-Z stops the ranks, then us; they go on when we do
    signal_groups(SIGSTOP);
    raise(SIGSTOP);
    return signal_groups(SIGCONT);
  }
  if (signal == SIGWINCH) relay_.resize();
  if (asks_to_stop(signal) && phase_ == Phase::kRunning && stop_.signal == 0) stop_.signal = signal;
  if (asks_to_stop(signal)) ++stop_.requests;
  if (asks_to_stop(signal) && phase_ == Phase::kFlushing) phase_ = Phase::kDone;  // nobody reads the report
  if (signal == SIGINT && stop_.requests > 1 && phase_ < Phase::kKilled) {
    relay_.note("second interrupt: sending SIGKILL to " + running_ranks());
    signal_groups(SIGKILL);
    return enter(Phase::kKilled, kLastWordsMs);
  }
  signal_groups(signal);
  if (signal == SIGTERM && (phase_ == Phase::kRunning || phase_ == Phase::kGrace)) {
    relay_.note("SIGTERM: sent on to " + running_ranks() + "; SIGKILL follows after " + short_seconds(options_.grace_s) +
                " (--grace)");
    enter(Phase::kTerminated, to_ms(options_.grace_s));
  }
}

/// The ddprun that leads this one says it.
void Supervisor::handle_lead(int signal) {
  if (signal != SIGKILL && signal != SIGSTOP && signal != SIGCONT) return handle_signal(signal);
  signal_groups(signal);
  if (signal == SIGKILL) enter(Phase::kKilled, 0);
}

void Supervisor::collect_ends() {
  for (int32_t rank = 0; rank < static_cast<int32_t>(pids_.size()); ++rank) {
    siginfo_t info{};
    if (!running(rank)) continue;
    const auto pid = static_cast<id_t>(pids_[static_cast<size_t>(rank)]);
    if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    Outcome outcome;
    outcome.rank = rank;
    outcome.status = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : info.si_status;
    outcome.seconds = seconds();
    outcome.ended_by_us = phase_ == Phase::kTerminated || phase_ == Phase::kKilled;
    outcomes_.push_back(outcome);
    on_failure(outcome);
  }
}

void Supervisor::on_failure(const Outcome& outcome) {
  if (!failed(outcome) || phase_ != Phase::kRunning) return;
  const bool alone = outcomes_.size() == pids_.size() || stop_.requests > 0;
  const std::string text = job_.names.one(outcome.rank) + " failed (" + describe(outcome) + "); ";
  if (options_.survives() && stop_.requests == 0) return plan_restart(outcome);
  if (options_.keep_going) {
    if (!alone) relay_.note(text + running_ranks() + " may go on (--keep-going)");
    return;
  }
  enter(Phase::kGrace, to_ms(options_.grace_s));
  if (!alone) relay_.note(text + running_ranks() + " must exit within " + short_seconds(options_.grace_s) + " (--grace)");
}

void Supervisor::plan_restart(const Outcome& outcome) {
  const bool is_first = restart_.due.is_never();
  relay_.note(job_.names.one(outcome.rank) + " failed (" + describe(outcome) + ")");
  const int64_t lived_ms = (os::now_ns() - restart_.begun_ns) / 1'000'000;
  if (!is_first) return;
  restart_.due =
      os::Deadline::in_ms(restart_.policy.most() > restart_.policy.used() ? restart_.policy.delay_ms(lived_ms) : 1);
}

/// Are those that still run such as were started to join the others?
bool Supervisor::only_joining() const noexcept {
  for (int32_t rank = 0; rank < job_.ranks; ++rank)
    if (running(rank) && !restart_.joins[static_cast<size_t>(rank)]) return false;
  return true;
}

/// What has failed by now has one reason.
void Supervisor::restart() {
  restart_.begin();
  const auto ended = static_cast<int32_t>(outcomes_.size());
  const Answer answer = restart_.policy.next(job_.ranks - ended, count_succeeded(outcomes_));
  std::vector<int32_t> dead;
  for (int32_t rank = 0; rank < job_.ranks; ++rank)
    if (std::any_of(outcomes_.begin(), outcomes_.end(), [&](const auto& each) { return each.rank == rank && failed(each); }))
      dead.push_back(rank);
  switch (answer) {
    case Answer::kJoin:
      relay_.note("starting " + job_.names.list(dead) + " again, to join " + running_ranks() + restart_.policy.label());
      for (const int32_t rank : dead) replace(rank, true);
      return;
    case Answer::kGoOn:
      if (ended < job_.ranks) relay_.note(running_ranks() + " may go on without " + job_.names.list(dead));
      return;
    case Answer::kRestartAll:
      restart_.all = true;
      relay_.note("too few ranks (--min-ranks) are left: starting all again" + restart_.policy.label());
      break;
    case Answer::kEnd: break;
  }
  if (ended < job_.ranks) enter(Phase::kGrace, to_ms(options_.grace_s));
}

void Supervisor::restart_all() {
  restart_.begin();
  for (int32_t rank = 0; rank < job_.ranks; ++rank) replace(rank, false);
  enter(Phase::kRunning, options_.timeout_s > 0 ? to_ms(std::max(options_.timeout_s - seconds(), 0.0)) : 0);
}

/// Its process, which has ended, and what it left running give way to a new one.
void Supervisor::replace(int32_t rank, bool joins) {
  const auto at = static_cast<size_t>(rank);
  kill(-pids_[at], SIGKILL);
  reap(at);
  std::erase_if(outcomes_, [&](const Outcome& outcome) { return outcome.rank == rank; });
  std::vector<std::string> extra{"DDP_RESTARTS=" + std::to_string(restart_.policy.used())};
  if (joins) extra.emplace_back("DDP_JOIN=1");
  Rank started = launch_rank(job_, rank, -1, extra);
  restart_.joins[at] = joins;
  pids_[at] = started.pid;
  guard_.watch(started.pid);
  relay_.replace_rank(rank, std::move(started.out), std::move(started.err));
}

void Supervisor::advance() {
  if (restart_.due.passed() && phase_ == Phase::kRunning) restart();
  const bool all_ended = phase_ < Phase::kDraining && outcomes_.size() == pids_.size();
  if (all_ended && restart_.all && stop_.requests == 0 && !stop_.timed_out) return restart_all();
  if (phase_ == Phase::kRunning && count_succeeded(outcomes_) > 0 && !all_ended && only_joining()) {
    relay_.note(running_ranks() + " cannot join ranks that have ended, and must exit within " +
                short_seconds(options_.grace_s) + " (--grace)");
    enter(Phase::kGrace, to_ms(options_.grace_s));
  }
  const bool waits = phase_ == Phase::kRunning && !restart_.due.is_never() && stop_.requests == 0;
  if (all_ended && !waits) enter(Phase::kDraining, kDrainMs);
  if (phase_ == Phase::kDraining && (!relay_.reading() || deadline_.passed())) {
    relay_.close_inputs();
    end_everything();
    report();
    enter(Phase::kFlushing, stop_.requests > 0 ? kDrainMs : 0);  // a slow reader gets all, unless we were told to stop
  }
  if (phase_ == Phase::kFlushing && (!relay_.writing() || deadline_.passed())) phase_ = Phase::kDone;
  if (phase_ < Phase::kDraining && deadline_.passed()) on_deadline();
}

void Supervisor::on_deadline() {
  if (phase_ == Phase::kTerminated) {
    relay_.note(running_ranks() + " did not exit after SIGTERM: sending SIGKILL");
    signal_groups(SIGKILL);
    return enter(Phase::kKilled, kLastWordsMs);
  }
  if (phase_ == Phase::kKilled) {  // a machine that does not answer: let go of the connection, which ends its ranks
    for (const pid_t pid : pids_) kill(-pid, SIGKILL);
    return enter(Phase::kKilled, 0);
  }
  stop_.timed_out = phase_ == Phase::kRunning;
  if (stop_.timed_out) {
    relay_.note("the time limit of " + short_seconds(options_.timeout_s) + " (--timeout) is over: sending SIGTERM to " +
                running_ranks());
  } else {
    relay_.note(running_ranks() + " did not exit within " + short_seconds(options_.grace_s) + " (--grace): sending SIGTERM");
  }
  signal_groups(SIGTERM);
  enter(Phase::kTerminated, kTerminateMs);
}

void Supervisor::enter(Phase phase, int64_t for_ms) {
  phase_ = phase;
  deadline_ = os::Deadline::in_ms(for_ms);
}

// What the ranks left running ends here, before their process group numbers are given back to the system.
void Supervisor::end_everything() noexcept {
  for (const pid_t pid : pids_) kill(-pid, SIGKILL);
  for (size_t rank = 0; rank < pids_.size(); ++rank) reap(rank);
  pids_.clear();
  if (!job_.join_folder.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(job_.join_folder, ignored);
  }
}

void Supervisor::reap(size_t rank) noexcept {
  rusage usage{};
  while (wait4(pids_[rank], nullptr, 0, &usage) < 0 && errno == EINTR) {
  }
  for (auto& outcome : outcomes_) {
    if (outcome.rank == static_cast<int32_t>(rank)) outcome.peak_kib = usage.ru_maxrss;
  }
}

void Supervisor::report() {
  const int64_t now = count_oom_kills();
  JobEnd end;
  end.stop_signal = stop_.signal;
  end.timed_out = stop_.timed_out;
  end.enough = options_.keep_going ? 1 : options_.survives() ? restart_.policy.least_ranks() : job_.ranks;
  end.option = options_.survives() ? "--min-ranks" : "--keep-going";
  end.restarts = restart_.policy.used();
  end.each_rank = options_.verbose;
  end.oom_kills = now < 0 || start_.oom_kills < 0 ? -1 : now - start_.oom_kills;
  const LastWords words = last_words(job_.names, outcomes_, end, [this](int32_t rank) { return relay_.last_lines(rank); });
  exit_code_ = words.exit_code;
  for (const auto& line : words.lines) relay_.note(line);
}

void Supervisor::signal_groups(int signal) noexcept {
  if (!inputs_.leads.empty()) return inputs_.leads.signal(signal);
  for (const pid_t pid : pids_) kill(-pid, signal);
}

bool Supervisor::running(int32_t rank) const noexcept {
  return std::none_of(outcomes_.begin(), outcomes_.end(), [&](const Outcome& outcome) { return outcome.rank == rank; });
}

std::string Supervisor::running_ranks() const {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < job_.ranks; ++rank) {
    if (running(rank)) ranks.push_back(rank);
  }
  return job_.names.list(ranks);
}

}  // namespace

int run_job(const Options& options) { return Supervisor(options).run(); }

}  // namespace ddp::ddprun
