// SPDX-License-Identifier: Apache-2.0
// Follows a job for its report, its metrics and the progress line. It has no thread: the supervisor calls it at intervals.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/looks.hpp"
#include "ddprun/machine.hpp"
#include "ddprun/options.hpp"
#include "ddprun/report.hpp"
#include "ddprun/run.hpp"
#include "ddprun/tally.hpp"
#include "os/clock.hpp"
#include "trace/live.hpp"

namespace ddp::ddprun {

// Looks at ranks of this machine from outside: at the pages that libddp writes (trace/live.hpp) and at their processes.
// One thread.
class Lookout {
 public:
  /// `folder`: the ranks' DDP_WATCH_DIR.
  explicit Lookout(std::string folder) : folder_(std::move(folder)) {}

  struct Watched {
    int32_t rank = 0;
    pid_t pid = -1;  // of the process that was started; -1: none
  };
  /// What they have done since the last look. A restarted rank continues its counts.
  [[nodiscard]] Look look(const std::vector<Watched>& ranks);

 private:
  [[nodiscard]] RankLook look_at(const Watched& rank, Look& look);

  std::string folder_;
  int32_t cores_ = usable_cores();
  std::map<int32_t, trace::LiveNumbers> last_;
};

/// Of a process of this machine; 0: it is not there, or has ended.
[[nodiscard]] int64_t resident_kib(pid_t pid);

// The line with the progress of a job.
/// Of the last seconds.
class Progress {
 public:
  void add(const Sample& sample);
  /// "48.2 steps/s, 84 % hidden, waiting for rank 2 (7 %), 5,577 steps in 2:00 min, loss 0.44"; "": nothing was done yet.
  /// `slowest`: the rank that others wait for, -1: none is conspicuous; `share`: of their time; `names`: of the program's
  /// numbers, of which the line has the first.
  [[nodiscard]] std::string line(int32_t slowest, double share, const std::vector<std::string>& names) const;

 private:
  std::deque<Sample> samples_;  // without the memory of ranks
};

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
