// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_report_test.sh.
#include "ddprun/observer.hpp"

#include <ctime>

#include "ddp/types.h"
#include "ddprun/figures.hpp"
#include "ddprun/metrics.hpp"
#include "ddprun/report_file.hpp"

namespace ddp::ddprun {
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
