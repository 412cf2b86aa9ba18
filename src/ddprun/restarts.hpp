// What follows when ranks have failed in a job that survives (--max-restarts, --min-ranks): they are started again and join
// the others, or the others go on without them, or everything starts again, or the job ends. Pure.
// Tested by unit/ddprun/restarts_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/options.hpp"
#include "os/clock.hpp"

namespace ddp::ddprun {

enum class Answer {
  kJoin,        // the dead ranks start again and join the others
  kGoOn,        // the others go on without them
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
  /// How long to wait before that: what else fails for the same reason does so by then. Longer and longer for ranks that
  /// fail soon after they were started, `lived_ms` ago.
  [[nodiscard]] int64_t delay_ms(int64_t lived_ms) noexcept;
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
  int64_t delay_ms_ = 0;
};

/// Ranks that failed and are to be started again.
struct PendingRestart {
  Restarts policy;
  os::Deadline due = os::Deadline::never();
  bool all = false;  // the others end first
  int64_t begun_ns = os::now_ns();
  void begin() { due = os::Deadline::never(), all = false, begun_ns = os::now_ns(); }
  std::vector<bool> joins{};  // by rank: started again, to join the others
};

}  // namespace ddp::ddprun
