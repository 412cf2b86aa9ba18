// SPDX-License-Identifier: Apache-2.0
// What follows when ranks have failed in a job that survives (--max-restarts, --min-ranks): they are restarted and join the
// others, or the others continue without them, or all ranks restart, or the job ends. Pure. Tested by
// unit/ddprun/restarts_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ddprun/options.hpp"
#include "os/clock.hpp"

namespace ddp::ddprun {

enum class Answer {
  kJoin,        // the dead ranks start again and join the others
  kGoOn,        // the others continue without them
  kRestartAll,  // too few are left: they end, and all start again
  kEnd          // the job has failed
};

class Restarts {
 public:
  explicit Restarts(const Options& options)
      : most_(options.max_restarts),
        least_ranks_(options.min_ranks > 0 ? options.min_ranks : 1),
        may_shrink_(options.min_ranks > 0) {}

  /// `running`: ranks that have not ended; `succeeded`: those that ended well. A restart that follows is counted.
  [[nodiscard]] Answer next(int32_t running, int32_t succeeded) noexcept;
  /// " (restart 1 of 3)"
  [[nodiscard]] std::string label() const;
  [[nodiscard]] int32_t used() const noexcept { return used_; }
  [[nodiscard]] int32_t most() const noexcept { return most_; }
  [[nodiscard]] int32_t least_ranks() const noexcept { return least_ranks_; }

 private:
  const int32_t most_;
  const int32_t least_ranks_;
  const bool may_shrink_;
  int32_t used_ = 0;
};

/// A place where ranks fail again and again, soon after they were started, rests before it gets its ranks again: a machine,
/// or where there is one alone the place of one rank.
class Cooldown {
 public:
  /// How long `place` rests now that a rank has failed there `lived_ms` after its start: 0 the first time and after a life
  /// that was long enough, then 10 s, 20 s, ... up to 10 min.
  [[nodiscard]] int64_t rest_ms(const std::string& place, int64_t lived_ms);

 private:
  struct Place {
    bool failed = false;
    int64_t rest_ms = 0;
  };
  std::map<std::string, Place> places_;
};

/// Ranks that failed, and when what follows.
struct PendingRestart {
  Restarts policy;
  Cooldown cooldown{};
  os::Deadline due = os::Deadline::never();   // what has failed by then has one reason
  std::map<int32_t, os::Deadline> resting{};  // ranks that join the others then
  bool all = false;                           // the others end first
  os::Deadline all_due = os::Deadline::never();
  std::vector<bool> joins{};          // by rank: started again, to join the others
  std::vector<int64_t> started_ns{};  // by rank

  void begin() { due = os::Deadline::never(), all = false; }
  [[nodiscard]] bool is_waiting() const { return !due.is_never() || !resting.empty(); }
  /// Until the next of them. All start again when all have ended, so `all_due` counts from then on only.
  [[nodiscard]] int64_t left_ms(bool all_ended) const;
};

}  // namespace ddp::ddprun
