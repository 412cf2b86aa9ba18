// SPDX-License-Identifier: Apache-2.0
// One thread, one loop: the signals (as a descriptor), the outputs of all ranks, our own outputs, and the next deadline.
//
//   running -> grace (a rank failed; libddp tells the other ranks, which may save and exit)
//           -> terminated (SIGTERM was sent) -> killed (SIGKILL was sent)
//   running -> terminated when we get SIGTERM, or --timeout is over
//   any of these -> draining (no rank runs; last output) -> flushing (the report is written) -> done
//
// One that obeys another ddprun (orders.hpp) starts ranks and reports their ends, and decides nothing.
// Tested by process/ddprun_test.sh, ddprun_failure_test.sh, ddprun_signals_test.sh, ddprun_orphans_test.sh.
#include "ddprun/supervise.hpp"

#include <algorithm>
#include <csignal>
#include <numeric>

#include "ddprun/loop.hpp"
#include "ddprun/machine.hpp"
#include "ddprun/supervisor.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kTerminateMs = 5'000;   // from SIGTERM to SIGKILL
constexpr int64_t kDrainMs = 1'000;       // for what a rank left behind to write its last lines
constexpr int64_t kHostsDrainMs = 5'000;  // the same for machines
constexpr int64_t kLastWordsMs = 2'000;   // from SIGKILL until a machine that does not answer is given up
constexpr int64_t kWakeMs = 1'000;        // now and then, for a terminal whose foreground job we have become again

}  // namespace

Supervisor::Supervisor(const Options& options)
    : options_(options),
      job_(options.machines.hosts.empty() ? prepare_job(options, signals_.original_mask())
                                          : prepare_hosts(options, signals_.original_mask())),
      names_(options.leads_ranks() ? rank_names_of(options) : job_.names),
      relay_(loop_, options),
      observer_(options, job_.watch_folder.path()),
      trace_(options, job_.watch_folder.path()),
      inputs_{Input(loop_, !options.machines.led, [this] { relay_.typed_line(); }), Leads(loop_, options.machines.silence_s),
              Leash(loop_, options.machines.led, options.machines.silence_s,
                    {[this](int signal) { handle_lead(signal); }, [this](const Order& order) { handle_order(order); },
                     [this] { handle_loss(); }}),
              JoinFiles(options.machines.obeys ? job_.join_folder.path() : ""),
              Ready(loop_, signals_.fd(), Ready::Whose::kOurs, Ready::For::kReading, [this] { take_signals(); })},
      crews_{LocalCrew(job_, relay_, [this](int32_t process) { return stdin_of(process); }), nullptr},
      restart_{Restarts(options)} {
  status_.ranks = job_.ranks;
  if (options.leads_ranks()) {
    crews_.hosts = std::make_unique<HostCrew>(options.machines, job_.mark, inputs_.leads, relay_, crews_.local,
                                              [this](int32_t host, const Report& seen) { take_seen(host, seen); });
    status_.ranks = static_cast<int32_t>(names_.places.size());
  }
  if (!options.machines.hosts.empty() && !options.leads_ranks() && observer_.is_on())
    relay_.take_reports(job_.mark, [this](int32_t host, std::string_view text) { take_of_host(host, text); });
  restart_.joins.resize(static_cast<size_t>(status_.ranks));
  restart_.started_ns.resize(static_cast<size_t>(status_.ranks));
  course_.oom_kills = options.leads_ranks() ? -1 : count_oom_kills();
}

int Supervisor::run() {
  begin();
  while (now_.phase != Phase::kDone) {
    wait_once();
    advance();
  }
  return course_.exit_code;
}

void Supervisor::begin() {
  if (options_.telling.verbose) relay_.note(job_.said.notes);
  if (!job_.said.allocation.empty()) relay_.note(job_.said.allocation);
  if (!job_.said.threads.empty()) relay_.note(job_.said.threads);
  if (options_.limits.timeout_s > 0) enter(Phase::kRunning, to_ms(options_.limits.timeout_s));
  std::vector<int32_t> all(static_cast<size_t>(status_.ranks));
  std::iota(all.begin(), all.end(), 0);
  if (!options_.machines.obeys) {
    start(all, {});
  } else {
    for (const int32_t rank : all) status_.outcomes.push_back({rank});  // none runs until one is ordered to
  }
  inputs_.rank_zero.started();
  inputs_.leads.started();
}

/// Rank 0 gets ours, but where a ddprun elsewhere leads; machines are led.
int Supervisor::stdin_of(int32_t process) {
  if (!job_.commands.empty()) return inputs_.leads.open(static_cast<size_t>(process), job_.header);
  return job_.names.first + process == 0 && !options_.machines.led ? inputs_.rank_zero.for_rank_zero() : -1;
}

void Supervisor::wait_once() {
  inputs_.signalled.wait();
  inputs_.leash.wait();
  inputs_.rank_zero.wait();
  inputs_.leads.wait();
  relay_.wait();
  loop_.wait(left_ms());
  relay_.read_ready();
  inputs_.leash.check_silence();
  for (const auto& [name, bytes] : inputs_.join_files.changed())
    relay_.report(job_.mark + write_report({Report::Kind::kFile, 0, 0, 0, name, bytes}));
  if (crews_.hosts != nullptr) collect_ends();
  if (now_.phase < Phase::kDraining && observer_.is_due()) observe();
  inputs_.leads.beat();
  relay_.show_open_lines();
}

int64_t Supervisor::left_ms() const noexcept {
  int64_t left = std::min({now_.deadline.left_ms(), restart_.left_ms(status_.all_ended()), inputs_.join_files.due_ms(),
                           now_.phase < Phase::kDraining ? observer_.due_ms() : kWakeMs, kWakeMs});
  const int64_t due = relay_.due_ns();
  if (due != Screen::kNever) left = std::min(left, std::max<int64_t>(due - os::now_ns(), 0) / 1'000'000 + 1);
  return left;
}

/// Machines get it by their stdin: the processes that we have started are connections, which must stay.
void Supervisor::signal_ranks(int signal) {
  if (!job_.commands.empty()) return inputs_.leads.signal(signal);
  crews_.local.signal(signal);
}

void Supervisor::take_signals() {
  for (int signal = signals_.take(); signal != 0; signal = signals_.take()) handle_signal(signal);
}

void Supervisor::handle_signal(int signal) {
  if (signal == SIGCHLD) return collect_ends();
  if (signal == SIGTSTP) {  // Ctrl-Z stops the ranks, then us; they resume when we do
    signal_ranks(SIGSTOP);
    raise(SIGSTOP);
    return signal_ranks(SIGCONT);
  }
  if (signal == SIGWINCH) relay_.resize();
  if (asks_to_stop(signal) && now_.phase == Phase::kRunning && stop_.signal == 0) stop_.signal = signal;
  if (asks_to_stop(signal)) ++stop_.requests;
  if (asks_to_stop(signal) && now_.phase == Phase::kFlushing) now_.phase = Phase::kDone;  // the report is not read
  if (signal == SIGINT && stop_.requests > 1 && now_.phase < Phase::kKilled) {
    relay_.note("second interrupt: sending SIGKILL to " + running_ranks());
    signal_ranks(SIGKILL);
    return enter(Phase::kKilled, kLastWordsMs);
  }
  signal_ranks(signal);
  if (signal == SIGTERM && (now_.phase == Phase::kRunning || now_.phase == Phase::kGrace)) {
    if (!status_.all_ended())
      relay_.note("SIGTERM: sent on to " + running_ranks() + "; SIGKILL follows after " +
                  short_seconds(options_.limits.grace_s) + " (--grace)");
    enter(Phase::kTerminated, to_ms(options_.limits.grace_s));
  }
}

void Supervisor::observe() {
  look();
  relay_.show_status(observer_.sample(seconds()));
}

/// At ranks here: their pages and processes.
void Supervisor::look() {
  if (!observer_.is_on() || !options_.machines.hosts.empty()) return;
  const Look seen = observer_.look([this](int32_t process) { return crews_.local.pid(process); });
  observer_.take(seen);
  if (job_.mark.empty()) return;
  const auto tell = [this](const Report& report) { relay_.report(job_.mark + write_report(report)); };
  Report report{Report::Kind::kLook};
  report.look = seen;
  tell(report);
  trace_.pass_on(tell);
}

void Supervisor::take_seen(int32_t host, const Report& report) {
  if (report.kind == Report::Kind::kPiece) return trace_.keep(host, report);
  observer_.take(report.look);
}

/// From a machine that is led as a whole: how ranks end there matters to the report alone.
void Supervisor::take_of_host(int32_t host, std::string_view text) {
  const auto report = read_report(text);
  if (!report.has_value()) return;
  if (report->kind == Report::Kind::kLook || report->kind == Report::Kind::kPiece) return take_seen(host, *report);
  if (report->kind == Report::Kind::kEnded)
    observer_.end({report->rank, report->status, seconds(), report->peak_kib, false, {}});
}

/// The ddprun that leads this one prints it.
void Supervisor::handle_lead(int signal) {
  if (signal != SIGKILL && signal != SIGSTOP && signal != SIGCONT) return handle_signal(signal);
  signal_ranks(signal);
  if (signal == SIGKILL) enter(Phase::kKilled, 0);
}

void Supervisor::handle_order(const Order& order) {
  if (!options_.machines.obeys) return;
  if (order.kind == Order::Kind::kOver) inputs_.over = true;
  if (order.kind == Order::Kind::kFile) inputs_.join_files.put(order.name, order.bytes);
  if (order.kind != Order::Kind::kStart) return;
  std::vector<int32_t> ranks;
  for (int32_t rank = order.first; rank <= order.last; ++rank)
    if (rank >= names_.first && rank < names_.first + status_.ranks) ranks.push_back(rank - names_.first);
  stop_ = {};
  enter(Phase::kRunning, 0);
  start(ranks, order.how);
}

void Supervisor::handle_loss() {
  if (!inputs_.over) relay_.note("the connection to the ddprun that started this one is gone");
  inputs_.over = true;
  handle_signal(SIGTERM);
}

void Supervisor::advance() {
  const bool obeys = options_.machines.obeys;
  if (now_.phase == Phase::kRunning && !obeys) {
    if (restart_.due.passed()) decide();
    join_rested();
    give_up_joining();
  }
  const bool all_ended = now_.phase < Phase::kDraining && status_.all_ended();
  if (all_ended && restart_.all && stop_.requests == 0 && !stop_.timed_out) {
    if (restart_.all_due.is_never() || restart_.all_due.passed()) restart_all();
    return;
  }
  const bool waits = obeys ? !inputs_.over : now_.phase == Phase::kRunning && restart_.is_waiting() && stop_.requests == 0;
  if (all_ended && !waits) {
    crews_.main().finish();
    enter(Phase::kDraining, crews_.hosts != nullptr ? kHostsDrainMs : kDrainMs);
  }
  if (now_.phase == Phase::kDraining && (!relay_.reading() || now_.deadline.passed())) {
    relay_.close_inputs();
    end_everything();
    if (!obeys) report();
    enter(Phase::kFlushing, stop_.requests > 0 ? kDrainMs : 0);  // a slow reader gets all, unless the job is being stopped
  }
  if (now_.phase == Phase::kFlushing && (!relay_.writing() || now_.deadline.passed())) now_.phase = Phase::kDone;
  if (now_.phase < Phase::kDraining && now_.deadline.passed()) on_deadline();
}

void Supervisor::on_deadline() {
  if (now_.phase == Phase::kTerminated) {
    if (!status_.all_ended()) relay_.note(running_ranks() + " did not exit after SIGTERM: sending SIGKILL");
    signal_ranks(SIGKILL);
    return enter(Phase::kKilled, kLastWordsMs);
  }
  if (now_.phase == Phase::kKilled) {  // a machine that does not answer: close the connection, which ends its ranks
    crews_.main().let_go();
    return enter(Phase::kKilled, 0);
  }
  stop_.timed_out = now_.phase == Phase::kRunning;
  if (stop_.timed_out) {
    relay_.note("the time limit of " + short_seconds(options_.limits.timeout_s) +
                " (--timeout) is over: sending SIGTERM to " + running_ranks());
  } else {
    relay_.note(running_ranks() + " did not exit within " + short_seconds(options_.limits.grace_s) +
                " (--grace): sending SIGTERM");
  }
  signal_ranks(SIGTERM);
  enter(Phase::kTerminated, kTerminateMs);
}

void Supervisor::enter(Phase phase, int64_t for_ms) { now_ = {phase, os::Deadline::in_ms(for_ms)}; }

// What the ranks left running ends here, before their process group numbers are given back to the system.
void Supervisor::end_everything() noexcept {
  crews_.main().end();
  if (const std::string text = trace_.write(); !text.empty()) relay_.note(text);
  job_.join_folder.remove();
  job_.watch_folder.remove();
}

int run_job(const Options& options) { return Supervisor(options).run(); }

}  // namespace ddp::ddprun
