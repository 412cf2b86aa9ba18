// SPDX-License-Identifier: Apache-2.0
// Follows a job for its report, its metrics and the progress line. It has no thread: the supervisor calls it at intervals.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/lookout.hpp"
#include "ddprun/options.hpp"
#include "ddprun/progress.hpp"
#include "ddprun/report.hpp"
#include "ddprun/tally.hpp"
#include "os/clock.hpp"

namespace ddp::ddprun {

class Observer {
 public:
  /// `folder`: where ranks here write their live numbers; "": they are not watched.
  Observer(const Options& options, const std::string& folder);

  [[nodiscard]] bool is_due() const noexcept { return on_ && (fresh_ || next_.passed()); }
  [[nodiscard]] int64_t due_ms() const noexcept { return !on_ ? INT64_MAX : fresh_ ? 0 : next_.left_ms(); }
  [[nodiscard]] bool is_on() const noexcept { return on_; }

  [[nodiscard]] const std::vector<RankRun>& ranks() const noexcept { return tally_.ranks(); }
  /// Ranks, as the launcher counts, have been started.
  void start(int32_t rank);
  void end(const Outcome& outcome);
  /// What ranks here have done since the last look; `pid_of`: of the process of each place here.
  [[nodiscard]] Look look(const std::function<pid_t(int32_t)>& pid_of);
  /// What has been seen here, or elsewhere.
  void take(const Look& look);
  /// Records the state of the job, and returns it as a line; "": there is nothing to report.
  [[nodiscard]] std::string sample(double seconds);
  /// Writes the report and the last metrics, if they are wanted. `run`: data of other modules about the job. Returns the
  /// messages to print.
  [[nodiscard]] std::vector<std::string> finish(Run run);

 private:
  void fill(Run& run) const;
  void write_metrics_of(double seconds);

  const Options& options_;
  bool on_;
  Lookout lookout_;
  Tally tally_;
  Progress progress_;
  bool fresh_ = false;  // another machine has sent news of the rank whose steps count
  os::Deadline next_ = os::Deadline::in_ms(1);
  struct {
    os::Deadline next = os::Deadline::in_ms(1);
    std::string cause{};  // why the file could not be written the last time; "": it could
  } metrics_;
  int64_t begun_unix_s_;
};

}  // namespace ddp::ddprun
