// SPDX-License-Identifier: Apache-2.0
// Adds up the live numbers of the ranks of a job: pure, except for its own state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/looks.hpp"
#include "ddprun/run.hpp"

namespace ddp::ddprun {

class Tally {
 public:
  /// Of ranks `first` to `first + ranks - 1`.
  Tally(int32_t first, int32_t ranks);

  void start(int32_t rank);
  /// It does not run any more. `peak_kib`: 0 if it is not known.
  void end(int32_t rank, double seconds, const std::string& how, bool failed, int64_t peak_kib);
  /// What has been seen of some ranks; others are left out.
  void add(const Look& look);
  /// Records the state of the job. Drops every second sample when there are too many.
  void sample(double seconds);
  /// What the next look of this rank brings makes a sample worth while: the job's steps are those of this rank.
  [[nodiscard]] int32_t followed() const noexcept { return first_ + static_cast<int32_t>(followed_); }
  /// The name of a rank's machine.
  void set_host(int32_t rank, const std::string& host);

  [[nodiscard]] const std::vector<RankRun>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] const std::vector<Sample>& samples() const noexcept { return samples_; }
  /// Of the program's numbers in samples.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// The newest, whether it was kept or not.
  [[nodiscard]] const Sample& now() const noexcept { return now_; }

 private:
  struct State {
    int32_t place = -1;
    int64_t resident_kib = 0;
    Counts sampled{};  // counts at the last sample
  };
  [[nodiscard]] RankRun* find(int32_t rank) noexcept;
  void follow() noexcept;
  void keep(const Sample& sample);
  void take(RankRun& rank, const std::vector<ProgramValue>& program);
  /// Over the ranks that run and have logged it.
  [[nodiscard]] double mean_of(const std::string& name) const noexcept;

  int32_t first_;
  std::vector<RankRun> ranks_;
  std::vector<State> states_;  // by rank
  size_t followed_ = 0;
  int idle_ = 0;  // samples since it has done something
  Sample now_{};
  std::vector<Sample> samples_;
  std::vector<std::string> names_;
  int64_t every_ = 1;  // one of this many samples is kept
  int64_t seen_ = 0;
  size_t most_;
};

}  // namespace ddp::ddprun
