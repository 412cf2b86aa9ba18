// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_restart_test.sh, process/ddprun_hosts_test.sh, process/ddprun_sshd_restart_test.sh.
#include <algorithm>
#include <numeric>

#include "ddprun/loop.hpp"
#include "ddprun/machine.hpp"
#include "ddprun/supervisor.hpp"
#include "os/end_notes.hpp"
#include "os/life.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kOneReasonMs = 1'000;  // what fails within it fails for the same reason
constexpr int64_t kAtOnceMs = 1;

}  // namespace

bool Supervisor::Status::running(int32_t rank) const noexcept {
  return std::none_of(outcomes.begin(), outcomes.end(), [&](const Outcome& outcome) { return outcome.rank == rank; });
}

std::vector<int32_t> Supervisor::Status::running_ranks() const {
  std::vector<int32_t> found;
  for (int32_t rank = 0; rank < ranks; ++rank)
    if (running(rank)) found.push_back(rank);
  return found;
}

std::vector<int32_t> Supervisor::Status::failed_ranks() const {
  std::vector<int32_t> found;
  for (const Outcome& outcome : outcomes)
    if (failed(outcome)) found.push_back(outcome.rank);
  std::sort(found.begin(), found.end());
  return found;
}

void Supervisor::start(const std::vector<int32_t>& ranks, Start how) {
  for (const int32_t rank : ranks) {
    std::erase_if(status_.outcomes, [&](const Outcome& outcome) { return outcome.rank == rank; });
    restart_.joins[static_cast<size_t>(rank)] = how.joins;
    restart_.started_ns[static_cast<size_t>(rank)] = os::now_ns();
  }
  const bool whole_hosts = !options_.machines.hosts.empty() && crews_.hosts == nullptr;
  if (whole_hosts)
    for (const RankRun& rank : observer_.ranks()) observer_.start(rank.rank);
  else
    for (const int32_t rank : ranks) observer_.start(names_.first + rank);
  crews_.main().start(ranks, how);
}

void Supervisor::collect_ends() {
  std::vector<Outcome> ends = crews_.main().collect();
  if (!ends.empty()) look();
  for (Outcome& outcome : ends) {
    outcome.seconds = seconds();
    outcome.ended_by_us = now_.phase == Phase::kTerminated || now_.phase == Phase::kKilled;
    status_.outcomes.push_back(outcome);
    observe_end(outcome);
    if (options_.machines.obeys) {
      tell_leader(outcome);
    } else {
      on_failure(outcome);
    }
  }
}

/// Of a rank; a machine that is led as a whole has none.
void Supervisor::observe_end(const Outcome& outcome) {
  if (!observer_.is_on() || (!options_.machines.hosts.empty() && crews_.hosts == nullptr)) return;
  Outcome of_rank = outcome;
  of_rank.rank += names_.first;
  observer_.end(of_rank);
  if (!job_.mark.empty() && options_.machines.led && !options_.machines.obeys)
    relay_.report(job_.mark + write_report({Report::Kind::kEnded, of_rank.rank, outcome.status, outcome.peak_kib}));
}

/// For the ranks of other machines, which see no more than that it does not answer. It is a zombie still.
void Supervisor::note_end(const Outcome& outcome) {
  const std::string life = os::life_of(crews_.local.pid(outcome.rank)), name = os::end_note_name(life);
  if (life.empty()) return;
  inputs_.join_files.put(name, life);
  relay_.report(job_.mark + write_report({Report::Kind::kFile, 0, 0, 0, name, life}));
}

/// Its last lines first, or they would come too late.
void Supervisor::tell_leader(const Outcome& outcome) {
  note_end(outcome);
  relay_.drain(outcome.rank);
  const int32_t rank = names_.first + outcome.rank;
  if (failed(outcome))
    for (const std::string& line : relay_.last_lines(outcome.rank))
      relay_.report(job_.mark + write_report({Report::Kind::kLine, rank, 0, 0, {}, line}));
  relay_.report(job_.mark + write_report({Report::Kind::kEnded, rank, outcome.status, outcome.peak_kib}));
}

void Supervisor::on_failure(const Outcome& outcome) {
  if (!failed(outcome) || now_.phase != Phase::kRunning) return;
  const bool alone = status_.all_ended() || stop_.requests > 0;
  const std::string text = names_.one(outcome.rank) + " failed (" + describe(outcome) + ")";
  course_.story.add(outcome.seconds, text);
  if (options_.survives() && stop_.requests == 0) {
    relay_.note(text);
    if (restart_.due.is_never())
      restart_.due = os::Deadline::in_ms(restart_.policy.most() > restart_.policy.used() ? kOneReasonMs : kAtOnceMs);
    return;
  }
  if (options_.keep_going) {
    if (!alone) relay_.note(text + "; " + running_ranks() + " may go on (--keep-going)");
    return;
  }
  enter(Phase::kGrace, to_ms(options_.limits.grace_s));
  if (!alone)
    relay_.note(text + "; " + running_ranks() + " must exit within " + short_seconds(options_.limits.grace_s) +
                " (--grace)");
}

/// What has failed by now, and does not rest already, has one reason.
void Supervisor::decide() {
  restart_.begin();
  std::vector<int32_t> dead = status_.failed_ranks();
  std::erase_if(dead, [this](int32_t rank) { return restart_.resting.count(rank) > 0; });
  const auto running = static_cast<int32_t>(status_.running_ranks().size());
  const Answer answer = restart_.policy.next(running, count_succeeded(status_.outcomes));
  if (answer == Answer::kJoin) return rest_and_join(dead);
  if (answer == Answer::kGoOn) {
    if (running == 0) return;
    const std::string text = running_ranks() + " may go on without " + names_.list(status_.failed_ranks());
    relay_.note(text);
    return course_.story.add(seconds(), text);
  }
  if (answer == Answer::kRestartAll) {
    const std::string text = "too few ranks (--min-ranks) are left: starting all again" + restart_.policy.label();
    rest_and_join(dead);
    int64_t rest_ms = 0;
    for (const auto& [rank, when] : restart_.resting) rest_ms = std::max(rest_ms, when.left_ms());
    restart_.all = true;
    restart_.all_due = os::Deadline::in_ms(rest_ms);
    relay_.note(text);
    course_.story.add(seconds(), text);
  }
  restart_.resting.clear();
  if (running > 0) enter(Phase::kGrace, to_ms(options_.limits.grace_s));
}

/// A machine that has lost several ranks at once has failed once.
void Supervisor::rest_and_join(const std::vector<int32_t>& dead) {
  std::map<std::string, std::vector<int32_t>> places;
  for (const int32_t rank : dead)
    places[names_.places.empty() ? std::to_string(rank) : names_.places[static_cast<size_t>(rank)]].push_back(rank);
  for (const auto& [place, ranks] : places) {
    int64_t lived_ms = INT64_MAX;
    for (const int32_t rank : ranks)
      lived_ms = std::min(lived_ms, (os::now_ns() - restart_.started_ns[static_cast<size_t>(rank)]) / 1'000'000);
    const int64_t rest_ms = restart_.cooldown.rest_ms(place, lived_ms);
    for (const int32_t rank : ranks)
      restart_.resting.insert_or_assign(rank, os::Deadline::in_ms(std::max(rest_ms, kAtOnceMs)));
    if (rest_ms == 0) continue;
    const std::string text = (names_.places.empty() ? names_.list(ranks) : "host " + place) +
                             " failed again soon after a start, and rests for " +
                             short_seconds(static_cast<double>(rest_ms) * 1e-3);
    relay_.note(text);
    course_.story.add(seconds(), text);
  }
  join_rested();
}

void Supervisor::join_rested() {
  std::vector<int32_t> ranks;
  for (const auto& [rank, when] : restart_.resting)
    if (when.passed()) ranks.push_back(rank);
  if (ranks.empty() || status_.running_ranks().empty()) return;
  for (const int32_t rank : ranks) restart_.resting.erase(rank);
  const std::string text = "starting " + names_.list(ranks) + " again, to join " + running_ranks() + restart_.policy.label();
  relay_.note(text);
  course_.story.add(seconds(), text);
  start(ranks, {restart_.policy.used(), true});
}

void Supervisor::restart_all() {
  restart_.begin();
  restart_.all_due = os::Deadline::never();
  std::vector<int32_t> all(static_cast<size_t>(status_.ranks));
  std::iota(all.begin(), all.end(), 0);
  course_.story.add(seconds(), "starting " + names_.list(all) + " again" + restart_.policy.label());
  start(all, {restart_.policy.used(), false});
  enter(Phase::kRunning, options_.limits.timeout_s > 0 ? to_ms(std::max(options_.limits.timeout_s - seconds(), 0.0)) : 0);
}

/// Ranks that were started to join others, or rest before that, when no other is left.
void Supervisor::give_up_joining() {
  const std::vector<int32_t> running = status_.running_ranks();
  const bool only_joining = std::all_of(running.begin(), running.end(),
                                        [this](int32_t rank) { return restart_.joins[static_cast<size_t>(rank)]; });
  if (count_succeeded(status_.outcomes) == 0 || !only_joining) return;
  restart_.resting.clear();
  if (running.empty()) return;
  relay_.note(running_ranks() + " cannot join ranks that have ended, and must exit within " +
              short_seconds(options_.limits.grace_s) + " (--grace)");
  enter(Phase::kGrace, to_ms(options_.limits.grace_s));
}

void Supervisor::report() {
  const int64_t now = count_oom_kills();
  JobEnd end;
  end.stop_signal = stop_.signal;
  end.timed_out = stop_.timed_out;
  end.enough = options_.keep_going ? 1 : options_.survives() ? restart_.policy.least_ranks() : status_.ranks;
  end.option = options_.survives() ? "--min-ranks" : "--keep-going";
  end.restarts = restart_.policy.used();
  end.each_rank = options_.telling.verbose;
  end.oom_kills = now < 0 || course_.oom_kills < 0 ? -1 : now - course_.oom_kills;
  if (!course_.story.lines().empty() && options_.survives()) {
    const std::vector<Outcome>& all = status_.outcomes;
    const auto succeeded = static_cast<size_t>(count_succeeded(all));
    Story told = course_.story;  // in the report this is no failure
    told.add(seconds(), std::to_string(succeeded) + " of " + std::to_string(all.size()) + " ranks have succeeded");
    end.story = told.lines();
  }
  const LastWords words =
      last_words(names_, status_.outcomes, end, [this](int32_t rank) { return crews_.main().last_lines(rank); });
  course_.exit_code = words.exit_code;
  relay_.show_status("");
  for (const auto& line : words.lines) relay_.note(line);
  save_report(words, end);
}

void Supervisor::save_report(const LastWords& words, const JobEnd& end) {
  Run run;
  run.machine = this_machine();
  run.seconds = seconds();
  run.exit_code = words.exit_code;
  run.restarts = restart_.policy.used();
  if (options_.keep_going || options_.survives()) {
    run.least_ranks = end.enough;
    run.least_by = options_.min_ranks > 0 || options_.keep_going ? end.option : "--max-restarts";
  }
  for (const Story::Event& event : course_.story.events()) run.events.push_back({event.seconds, event.text});
  run.last_words = words.lines;
  for (const std::string& message : observer_.finish(std::move(run))) relay_.note(message);
}

}  // namespace ddp::ddprun
