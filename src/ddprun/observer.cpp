// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_report_test.sh.
#include "ddprun/observer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>

#include "ddp/types.h"
#include "ddprun/figures.hpp"
#include "ddprun/metrics.hpp"
#include "ddprun/numbers.hpp"
#include "ddprun/report_file.hpp"

namespace ddp::ddprun {
namespace {

Counts counts_of(const trace::LivePage& page) {
  Counts counts;
  counts.passes = page.passes.count;
  counts.steps = page.work.steps;
  counts.backward_ns = page.passes.backward_ns;
  counts.comm_ns = page.passes.comm_ns;
  counts.exposed_ns = page.passes.exposed_ns;
  counts.sent_bytes = page.passes.sent_bytes;
  counts.step_ns = page.work.step_ns;
  counts.saves = page.work.saves;
  counts.save_ns = page.work.save_ns;
  counts.voids = page.passes.voids;
  counts.recoveries = page.place.recoveries;
  return counts;
}

/// Since the page was as `before`; NULL: since it was made.
std::vector<ProgramValue> logged_since(const trace::LiveNumbers* before, const trace::LiveNumbers& now) {
  std::vector<ProgramValue> program;
  for (size_t i = 0; i < now.program.size(); ++i) {  // names stay in their places
    const trace::ProgramNumber& number = now.program[i];
    const int64_t known = before != nullptr && i < before->program.size() ? before->program[i].times : 0;
    if (number.times > known) program.push_back({number.name, number.value, number.times - known});
  }
  return program;
}

bool same_process(const trace::LivePage& a, const trace::LivePage& b) {
  return a.made.pid == b.made.pid && a.made.at_ns == b.made.at_ns;
}

}  // namespace

int64_t resident_kib(pid_t pid) {
  if (pid <= 0) return 0;
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t whole = 0, resident = 0;
  return file >> whole >> resident ? resident * (sysconf(_SC_PAGESIZE) / 1024) : 0;
}

Look Lookout::look(const std::vector<Watched>& ranks) {
  Look look;
  for (const Watched& rank : ranks) look.ranks.push_back(look_at(rank, look));
  return look;
}

RankLook Lookout::look_at(const Watched& rank, Look& look) {
  RankLook seen;
  seen.rank = rank.rank;
  seen.resident_kib = resident_kib(rank.pid);
  seen.cores = cores_;
  std::optional<trace::LiveNumbers> page = trace::read_live(trace::live_path(folder_, rank.rank));
  if (!page.has_value()) return seen;
  seen.transports = page->place.transports;
  const auto found = last_.find(rank.rank);
  const bool goes_on = found != last_.end() && same_process(found->second, *page);
  seen.since = counts_of(*page) - (goes_on ? counts_of(found->second) : Counts());
  seen.program = logged_since(goes_on ? &found->second : nullptr, *page);
  seen.group = page->group;
  seen.buckets = {page->passes.gradient_bytes, page->passes.buckets, page->passes.largest_bucket,
                  page->passes.smallest_bucket};
  const int64_t resident = resident_kib(page->made.pid);  // a shell that was started has started the program
  if (resident > 0) {
    seen.resident_kib = resident;
    if (page->place.held == 1) seen.place = page->place.rank;
  }
  if (!goes_on || found->second.place.generation == page->place.generation) {
    look.awaited_ns.resize(std::max(look.awaited_ns.size(), page->waited_ns.size()));
    for (size_t place = 0; place < page->waited_ns.size(); ++place) {
      const bool known = goes_on && place < found->second.waited_ns.size();
      const int64_t waited = page->waited_ns[place] - (known ? found->second.waited_ns[place] : 0);
      if (static_cast<int32_t>(place) == page->place.rank || waited <= 0) continue;
      look.awaited_ns[place] += waited;
      seen.waited_ns += waited;
    }
  }
  last_[rank.rank] = std::move(*page);
  return seen;
}

namespace {

constexpr double kWindow = 3;   // seconds
constexpr size_t kMostOwn = 3;  // numbers of the program

}  // namespace

void Progress::add(const Sample& sample) {
  samples_.push_back(sample);
  samples_.back().resident_kib.clear();
  while (samples_.size() > 2 && sample.seconds - samples_[1].seconds >= kWindow) samples_.pop_front();
}

std::string Progress::line(int32_t slowest, double share, const std::vector<std::string>& names) const {
  if (samples_.size() < 2) return "";
  const Sample &before = samples_.front(), &now = samples_.back();
  if (now.passes == 0 && now.steps == 0) return "";
  const bool steps = now.steps > 0;
  const int64_t done = steps ? now.steps : now.passes, since = done - (steps ? before.steps : before.passes);
  const std::string unit = steps ? "steps" : "passes";
  std::string line =
      format_number(static_cast<double>(since) / std::max(now.seconds - before.seconds, 1e-3)) + " " + unit + "/s";
  const double hidden = share_hidden(now.all - before.all);
  if (hidden >= 0) line += ", " + format_share(hidden) + " hidden";
  if (slowest >= 0) line += ", waiting for rank " + std::to_string(slowest) + " (" + format_share(share) + ")";
  line += ", " + format_number(static_cast<double>(done)) + " " + unit + " in " +
          format_time(std::max(std::floor(now.seconds), 1.0));
  for (size_t i = 0; i < std::min(now.program.size(), kMostOwn); ++i)
    line += ", " + names[i] + " " + format_value(now.program[i]);
  return line;
}

namespace {

constexpr int64_t kOftenMs = 250;  // at the beginning: many jobs are short
constexpr double kBeginning = 30;  // seconds
constexpr int64_t kSeldomMs = 1'000;
constexpr int64_t kMetricsMs = 990;      // a look is due after that, which comes a little late
constexpr int64_t kElsewhereMs = 3'000;  // until a machine that tells nothing is not waited for

int32_t world_of(const Options& options) {
  int32_t world = 0;
  for (const Host& host : options.machines.hosts) world += host.ranks;
  return world;
}

}  // namespace

Observer::Observer(const Options& options, const std::string& folder)
    : options_(options),
      on_(options.watches() && (!folder.empty() || !options.machines.hosts.empty())),
      lookout_(folder),
      tally_(options.machines.hosts.empty() ? options.machines.first_rank() : 0,
             options.machines.hosts.empty() ? options.ranks : world_of(options)),
      begun_unix_s_(static_cast<int64_t>(time(nullptr))) {
  int32_t rank = 0;
  for (const Host& host : options.machines.hosts)
    for (int32_t i = 0; i < host.ranks; ++i) tally_.set_host(rank++, host.name);
}

void Observer::start(int32_t rank) {
  if (on_) tally_.start(rank);
}

void Observer::end(const Outcome& outcome) {
  if (on_) tally_.end(outcome.rank, outcome.seconds, describe(outcome), failed(outcome), outcome.peak_kib);
}

Look Observer::look(const std::function<pid_t(int32_t)>& pid_of) {
  std::vector<Lookout::Watched> watched;
  watched.reserve(static_cast<size_t>(options_.ranks));
  for (int32_t local = 0; local < options_.ranks; ++local)
    watched.push_back({options_.machines.first_rank() + local, pid_of(local)});
  return lookout_.look(watched);
}

void Observer::take(const Look& look) {
  if (!on_) return;
  tally_.add(look);
  for (const RankLook& rank : look.ranks)
    fresh_ = fresh_ || (rank.rank == tally_.followed() && !options_.machines.hosts.empty());
}

std::string Observer::sample(double seconds) {
  fresh_ = false;
  const bool often = seconds < kBeginning && !options_.machines.led;
  next_ = os::Deadline::in_ms(!options_.machines.hosts.empty() ? kElsewhereMs : often ? kOftenMs : kSeldomMs);
  tally_.sample(seconds);
  if (!options_.telling.metrics.empty()) write_metrics_of(seconds);
  if (!options_.telling.shows_progress) return "";
  progress_.add(tally_.now());
  std::vector<double> waited;
  for (const RankRun& rank : tally_.ranks()) waited.push_back(static_cast<double>(rank.awaited_ns) * 1e-9);
  const int32_t slowest = find_straggler(waited, seconds);
  if (slowest < 0) return progress_.line(-1, 0, tally_.names());
  const auto at = static_cast<size_t>(slowest);
  return progress_.line(tally_.ranks()[at].rank, waited[at] / static_cast<double>(waited.size() - 1) / seconds,
                        tally_.names());
}

void Observer::fill(Run& run) const {
  run.command = options_.command;
  run.version = DDP_VERSION_STRING;
  run.started_unix_s = begun_unix_s_;
  run.ranks = tally_.ranks();
  run.names = tally_.names();
  run.world_size = options_.machines.hosts.empty() ? options_.machines.world_size() : static_cast<int32_t>(run.ranks.size());
}

/// Once a second: a look may come more often.
void Observer::write_metrics_of(double seconds) {
  if (!metrics_.next.passed()) return;
  metrics_.next = os::Deadline::in_ms(kMetricsMs);
  Run run;
  run.machine = this_machine();
  run.seconds = seconds;
  fill(run);
  run.samples = {tally_.now()};
  metrics_.cause = write_whole(options_.telling.metrics, write_metrics(run, false));
}

std::vector<std::string> Observer::finish(Run run) {
  std::vector<std::string> messages;
  if (!on_ || (options_.telling.report.empty() && options_.telling.metrics.empty())) return messages;
  tally_.sample(run.seconds);
  fill(run);
  run.samples = tally_.samples();
  if (!run.samples.empty() && run.samples.back().seconds < tally_.now().seconds) run.samples.push_back(tally_.now());
  for (RankRun& rank : run.ranks)
    if (rank.end.empty()) rank.end = "not known", rank.ended_s = run.seconds;
  if (const std::string& path = options_.telling.metrics; !path.empty()) {
    metrics_.cause = write_whole(path, write_metrics(run, true));
    if (!metrics_.cause.empty()) messages.push_back("the metrics " + path + " could not be written: " + metrics_.cause);
  }
  if (options_.telling.report.empty()) return messages;
  messages.push_back(save_report(run, options_.telling.report));
  return messages;
}

}  // namespace ddp::ddprun
