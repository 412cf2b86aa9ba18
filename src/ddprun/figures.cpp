// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/tally_test.cpp.
#include "ddprun/figures.hpp"

#include <algorithm>
#include <utility>

#include "ddprun/numbers.hpp"
#include "trace/live.hpp"

namespace ddp::ddprun {
namespace {

constexpr size_t kMostIntervals = 240;  // more than a chart has room for
constexpr double kStandsOut = 0.01;     // of the time, that each other rank waits
constexpr double kTwice = 2;            // as long as for the next one
constexpr double kWellHidden = 0.8;
constexpr double kMs = 1e-6;  // of nanoseconds
constexpr double kUneven = 1.5;

bool counts_steps(const Run& run) { return !run.samples.empty() && run.samples.back().steps > 0; }

int64_t done(const Sample& sample, bool steps) { return steps ? sample.steps : sample.passes; }

Interval between(const Sample& before, const Sample& after, bool steps) {
  Interval interval{before.seconds, after.seconds};
  const double seconds = std::max(after.seconds - before.seconds, 1e-9);
  interval.per_second = static_cast<double>(done(after, steps) - done(before, steps)) / seconds;
  interval.resident_kib = after.resident_kib;
  interval.program = after.program;
  const Counts since = after.all - before.all;
  interval.share_hidden = share_hidden(since);
  if (since.passes <= 0 || since.comm_ns <= 0) return interval;
  const auto passes = static_cast<double>(since.passes);
  interval.exposed_ms = static_cast<double>(since.exposed_ns) * kMs / passes;
  interval.hidden_ms = std::max(static_cast<double>(since.comm_ns - since.exposed_ns), 0.0) * kMs / passes;
  return interval;
}

/// Of the intervals in which something was done: starting and ending are no training.
double median_rate(const std::vector<Interval>& intervals) {
  std::vector<double> rates;
  for (const Interval& interval : intervals)
    if (interval.per_second > 0) rates.push_back(interval.per_second);
  if (rates.empty()) return -1;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return *middle;
}

const RankRun* first_to_fail(const Run& run) {
  const RankRun* first = nullptr;
  for (const RankRun& rank : run.ranks)
    if (rank.failed && (first == nullptr || rank.ended_s < first->ended_s)) first = &rank;
  return first;
}

/// Whether the job succeeded, and by what that was judged.
void find_end(const Run& run, std::vector<RunFinding>& findings) {
  if (run.ranks.empty()) return;
  const auto failed = static_cast<size_t>(
      std::count_if(run.ranks.begin(), run.ranks.end(), [](const RankRun& rank) { return rank.failed; }));
  const std::string all = std::to_string(run.ranks.size()) + (run.ranks.size() == 1 ? " rank" : " ranks");
  const std::string least =
      run.least_ranks > 0 ? " At least " + std::to_string(run.least_ranks) + " had to (" + run.least_by + ")." : "";
  const std::string well = failed == 0 ? (run.ranks.size() == 1 ? "the rank" : "all " + all)
                                       : std::to_string(run.ranks.size() - failed) + " of " + all;
  if (run.exit_code != 0) {
    const RankRun* const first = first_to_fail(run);
    std::string text = "The job failed with exit code " + std::to_string(run.exit_code) + ".";
    if (first != nullptr)
      text += " Rank " + std::to_string(first->rank) + " ended first, after " + format_time(first->ended_s) + ": " +
              first->end + ".";
    return findings.push_back({RunFinding::Kind::kBad, text});
  }
  findings.push_back({failed == 0 ? RunFinding::Kind::kGood : RunFinding::Kind::kNote,
                      "The job succeeded: " + well + " ended with exit code 0." + least});
  if (run.restarts > 0)
    findings.push_back(
        {RunFinding::Kind::kNote,
         "Ranks were started again " + (run.restarts == 1 ? "once" : std::to_string(run.restarts) + " times") + "."});
}

/// "": a rank has completed one.
std::string why_no_pass(const Run& run) {
  bool made_group = false;
  for (const RankRun& rank : run.ranks) {
    if (rank.counts.passes > 0 || rank.counts.steps > 0) return "";
    made_group = made_group || rank.transports >= 0;
  }
  return made_group ? "The program made a group of libddp, and ended before the end of its first pass."
                    : "No rank made a group of libddp.";
}

void find_overlap(const RunFigures& figures, std::vector<RunFinding>& findings) {
  if (figures.share_hidden < 0) return;
  const bool good = figures.share_hidden >= kWellHidden;
  std::string text = format_share(figures.share_hidden) + " of the communication was hidden behind the backward pass; " +
                     format_ms(figures.exposed_ms) + " of each pass were spent waiting for it.";
  if (!good && figures.exposed_ms < 1) text += " That is so little that there is nothing to gain.";
  findings.push_back({good ? RunFinding::Kind::kGood : RunFinding::Kind::kNote, text});
}

void find_waits(const Run& run, const RunFigures& figures, std::vector<RunFinding>& findings) {
  const bool known =
      std::any_of(run.ranks.begin(), run.ranks.end(), [](const RankRun& rank) { return rank.awaited_ns > 0; });
  if (run.ranks.size() < 2 || !known) return;
  if (figures.straggler < 0)
    return findings.push_back(
        {RunFinding::Kind::kGood, "No rank stands out: the ranks waited for each other about equally."});
  for (const RankRun& rank : run.ranks) {
    if (rank.rank != figures.straggler) continue;
    const double each = static_cast<double>(rank.awaited_ns) * 1e-9 / static_cast<double>(run.ranks.size() - 1);
    findings.push_back({RunFinding::Kind::kBad, "Rank " + std::to_string(rank.rank) +
                                                    " is the straggler: each other rank waited " + format_time(each) +
                                                    " for it, " + format_share(each / std::max(run.seconds, 1e-9)) +
                                                    " of the run."});
  }
}

void find_memory(const Run& run, const RunFigures& figures, std::vector<RunFinding>& findings) {
  int64_t smallest = figures.peak_kib;
  for (const RankRun& rank : run.ranks)
    if (rank.peak_kib > 0) smallest = std::min(smallest, rank.peak_kib);
  if (smallest > 0 && static_cast<double>(figures.peak_kib) > kUneven * static_cast<double>(smallest))
    findings.push_back({RunFinding::Kind::kNote, "Memory is uneven: rank " + std::to_string(figures.largest) + " took " +
                                                     format_kib(figures.peak_kib) + ", the smallest " +
                                                     format_kib(smallest) + "."});
}

void find_lost_passes(const Run& run, std::vector<RunFinding>& findings) {
  int64_t voids = 0;
  for (const RankRun& rank : run.ranks) voids = std::max(voids, rank.counts.voids);
  if (voids > 0)
    findings.push_back({RunFinding::Kind::kNote, std::to_string(voids) + (voids == 1 ? " pass was" : " passes were") +
                                                     " void: gradients were missing, or a rank was lost."});
}

}  // namespace

int32_t transports_of(const Run& run) noexcept {
  int32_t all = 0;
  for (const RankRun& rank : run.ranks) all |= std::max(rank.transports, 0);
  return all;
}

std::string name_transports(int32_t transports) {
  const std::pair<trace::TransportBit, const char*> names[] = {
      {trace::kSharedMemory, "shared memory"}, {trace::kGloo, "Gloo"}, {trace::kNccl, "NCCL"}};
  std::string text;
  for (const auto& [bit, name] : names)
    if (transports > 0 && (transports & bit) != 0) text += (text.empty() ? "" : " and ") + std::string(name);
  return text;
}

double share_hidden(const Counts& counts) noexcept {
  if (counts.comm_ns <= 0) return -1;
  return std::clamp(1 - static_cast<double>(counts.exposed_ns) / static_cast<double>(counts.comm_ns), 0.0, 1.0);
}

int32_t find_straggler(const std::vector<double>& waited_s, double seconds) {
  if (waited_s.size() < 2 || seconds <= 0) return -1;
  const auto most = std::max_element(waited_s.begin(), waited_s.end());
  double next = 0;
  for (auto each = waited_s.begin(); each != waited_s.end(); ++each)
    if (each != most) next = std::max(next, *each);
  const double share = *most / static_cast<double>(waited_s.size() - 1) / seconds;
  return share > kStandsOut && *most > kTwice * next ? static_cast<int32_t>(most - waited_s.begin()) : -1;
}

std::vector<Interval> intervals_of(const Run& run, size_t most) {
  std::vector<Interval> intervals;
  const bool steps = counts_steps(run);
  const size_t stride = run.samples.size() / most + 1;
  for (size_t i = 0; i + 1 < run.samples.size(); i += stride)
    intervals.push_back(between(run.samples[i], run.samples[std::min(i + stride, run.samples.size() - 1)], steps));
  return intervals;
}

RunFigures figures_of(const Run& run) {
  RunFigures figures;
  figures.intervals = intervals_of(run, kMostIntervals);
  figures.unit = counts_steps(run) ? "steps" : "passes";
  figures.total = run.samples.empty() ? 0 : done(run.samples.back(), counts_steps(run));
  figures.per_second = median_rate(figures.intervals);
  figures.no_pass = why_no_pass(run);
  Counts all;
  std::vector<double> waited;
  for (const RankRun& rank : run.ranks) {
    all += rank.counts;
    waited.push_back(static_cast<double>(rank.awaited_ns) * 1e-9);
    if (rank.peak_kib > figures.peak_kib) figures.peak_kib = rank.peak_kib, figures.largest = rank.rank;
  }
  figures.share_hidden = share_hidden(all);
  if (all.passes > 0) {
    const auto passes = static_cast<double>(all.passes);
    figures.sent_bytes = static_cast<double>(all.sent_bytes) / passes;
    if (all.comm_ns > 0) {
      figures.exposed_ms = static_cast<double>(all.exposed_ns) * kMs / passes;
      figures.hidden_ms = std::max(static_cast<double>(all.comm_ns - all.exposed_ns), 0.0) * kMs / passes;
    }
  }
  const int32_t straggler = find_straggler(waited, run.seconds);
  if (straggler >= 0) figures.straggler = run.ranks[static_cast<size_t>(straggler)].rank;
  find_end(run, figures.findings);
  find_overlap(figures, figures.findings);
  find_waits(run, figures, figures.findings);
  find_memory(run, figures, figures.findings);
  find_lost_passes(run, figures.findings);
  for (RunFinding& finding : figures.findings)  // nothing is well in a job that has failed
    if (run.exit_code != 0 && finding.kind == RunFinding::Kind::kGood) finding.kind = RunFinding::Kind::kNote;
  return figures;
}

}  // namespace ddp::ddprun
