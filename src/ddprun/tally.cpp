// SPDX-License-Identifier: Apache-2.0
// The job's steps are those of one rank that runs, because all ranks make the same ones; when it has died, those of another.
// Their sum is never formed from parts of two ranks in one interval, so it cannot drift.
// Tested by unit/ddprun/tally_test.cpp.
#include "ddprun/tally.hpp"

#include <algorithm>
#include <limits>

namespace ddp::ddprun {
namespace {

constexpr size_t kMostSamples = 8192;
constexpr size_t kMostNumbers = 1 << 20;  // of memory, in all samples together
constexpr size_t kLeastSamples = 256;
constexpr int kIdleSamples = 8;      // of a rank that others do not wait for
constexpr double kSameMoment = 0.2;  // seconds

}  // namespace

Tally::Tally(int32_t first, int32_t ranks)
    : first_(first),
      ranks_(static_cast<size_t>(ranks)),
      states_(static_cast<size_t>(ranks)),
      most_(std::clamp(kMostNumbers / static_cast<size_t>(std::max(ranks, 1)), kLeastSamples, kMostSamples)) {
  for (int32_t i = 0; i < ranks; ++i) ranks_[static_cast<size_t>(i)].rank = first + i;
}

RankRun* Tally::find(int32_t rank) noexcept {
  const int64_t at = static_cast<int64_t>(rank) - first_;
  return at >= 0 && at < static_cast<int64_t>(ranks_.size()) ? &ranks_[static_cast<size_t>(at)] : nullptr;
}

void Tally::start(int32_t rank) {
  RankRun* const found = find(rank);
  if (found == nullptr) return;
  ++found->starts;
  found->end.clear();
  found->failed = false;
  states_[static_cast<size_t>(found - ranks_.data())].place = -1;
}

void Tally::end(int32_t rank, double seconds, const std::string& how, bool failed, int64_t peak_kib) {
  RankRun* const found = find(rank);
  if (found == nullptr) return;
  found->end = how;
  found->failed = failed;
  found->ended_s = seconds;
  found->peak_kib = std::max(found->peak_kib, peak_kib);
  State& state = states_[static_cast<size_t>(found - ranks_.data())];
  state.place = -1;
  state.resident_kib = 0;
}

void Tally::set_host(int32_t rank, const std::string& host) {
  if (RankRun* const found = find(rank); found != nullptr) found->host = host;
}

void Tally::add(const Look& look) {
  for (const RankLook& seen : look.ranks) {
    RankRun* const rank = find(seen.rank);
    if (rank == nullptr) continue;
    State& state = states_[static_cast<size_t>(rank - ranks_.data())];
    rank->counts += seen.since;
    rank->waited_ns += seen.waited_ns;
    rank->peak_kib = std::max(rank->peak_kib, seen.resident_kib);
    if (seen.cores > 0) rank->cores = seen.cores;
    if (seen.transports >= 0) rank->transports = std::max(rank->transports, 0) | seen.transports;
    if (seen.buckets.count > 0) rank->buckets = seen.buckets;
    if (!seen.group.empty()) rank->group = seen.group;
    take(*rank, seen.program);
    state.resident_kib = rank->runs() ? seen.resident_kib : 0;
    if (seen.place >= 0) state.place = seen.place;
  }
  for (size_t place = 0; place < look.awaited_ns.size(); ++place) {
    const auto holder = std::find_if(states_.begin(), states_.end(),
                                     [&](const State& state) { return state.place == static_cast<int32_t>(place); });
    if (holder != states_.end()) ranks_[static_cast<size_t>(holder - states_.begin())].awaited_ns += look.awaited_ns[place];
  }
}

void Tally::take(RankRun& rank, const std::vector<ProgramValue>& program) {
  for (const ProgramValue& seen : program) {
    const auto same = [&](const ProgramValue& each) { return each.name == seen.name; };
    const auto known = std::find_if(rank.program.begin(), rank.program.end(), same);
    if (known == rank.program.end()) {
      rank.program.push_back(seen);
      if (names_.size() < kMostNames && std::find(names_.begin(), names_.end(), seen.name) == names_.end())
        names_.push_back(seen.name);
      continue;
    }
    known->value = seen.value;
    known->times += seen.times;
  }
}

double Tally::mean_of(const std::string& name) const noexcept {
  double sum = 0;
  int count = 0;
  for (const RankRun& rank : ranks_)
    for (const ProgramValue& each : rank.program) {
      if (!rank.runs() || each.name != name) continue;
      sum += each.value;
      ++count;
    }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

/// Another rank, if this one has ended or done nothing for long, and another that runs has done something.
void Tally::follow() noexcept {
  const auto idle = [this](size_t i) {
    const Counts since = ranks_[i].counts - states_[i].sampled;
    return since.steps == 0 && since.passes == 0;
  };
  idle_ = idle(followed_) ? idle_ + 1 : 0;
  const bool gone = idle_ > 0 && (!ranks_[followed_].runs() || idle_ > kIdleSamples);
  for (size_t i = 0; i < ranks_.size() && gone; ++i) {
    if (!ranks_[i].runs() || idle(i)) continue;
    followed_ = i;
    idle_ = 0;
    return;
  }
}

void Tally::sample(double seconds) {
  if (ranks_.empty()) return;
  follow();
  const Counts since = ranks_[followed_].counts - states_[followed_].sampled;
  now_.seconds = seconds;
  now_.steps += since.steps;
  now_.passes += since.passes;
  now_.all = {};
  now_.running = 0;
  now_.resident_kib.clear();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    now_.all += ranks_[i].counts;
    now_.running += ranks_[i].runs() ? 1 : 0;
    now_.resident_kib.push_back(states_[i].resident_kib);
    states_[i].sampled = ranks_[i].counts;
  }
  now_.program.clear();
  for (const std::string& name : names_) now_.program.push_back(mean_of(name));
  keep(now_);
}

void Tally::keep(const Sample& sample) {
  if (!samples_.empty() &&
      sample.seconds - samples_.back().seconds < kSameMoment) {  // a rate of so short a time means little
    samples_.back() = sample;
    return;
  }
  if (seen_++ % every_ != 0) return;
  samples_.push_back(sample);
  if (samples_.size() < most_) return;
  size_t kept = 0;
  for (size_t i = 0; i < samples_.size(); i += 2) samples_[kept++] = std::move(samples_[i]);
  samples_.resize(kept);
  every_ *= 2;
}

}  // namespace ddp::ddprun
