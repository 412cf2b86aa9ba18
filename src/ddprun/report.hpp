// SPDX-License-Identifier: Apache-2.0
// Messages about the end of the ranks: pure functions from outcomes to text and an exit code.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/options.hpp"

namespace ddp::ddprun {

/// How one rank ended.
struct Outcome {
  int32_t rank = 0;
  int status = 0;            // as wait() gives it
  double seconds = 0;        // from the start of the job
  int64_t peak_kib = 0;      // largest resident memory, with its own children
  bool ended_by_us = false;  // after we had ordered it to end
  std::string lost{};        // the host whose connection broke, so that nothing else is known of its end
};

/// What the processes that ddprun has started are called: ranks, counted from `first`, or hosts.
struct Names {
  int32_t first = 0;
  std::vector<std::string> hosts{};
  std::vector<std::string> places{};  // hosts of the ranks, where they are led from here

  /// "rank 2", "rank 2 (host b)", "host b".
  [[nodiscard]] std::string one(int32_t local) const;
  /// "ranks 0, 1, 3", "hosts a, b".
  [[nodiscard]] std::string list(const std::vector<int32_t>& local) const;
};

[[nodiscard]] Names names_of(const Options& options);
/// Of all ranks of options.machines.hosts.
[[nodiscard]] Names rank_names_of(const Options& options);

[[nodiscard]] bool failed(const Outcome& outcome) noexcept;
[[nodiscard]] int32_t count_succeeded(const std::vector<Outcome>& outcomes) noexcept;

/// "2.5 s", "5 s": as the user gave them.
[[nodiscard]] std::string short_seconds(double seconds);

/// "SIGTERM".
[[nodiscard]] std::string signal_name(int signal);

/// 0 to 255, as in a shell: 128 + signal for signals.
[[nodiscard]] int exit_code(const Outcome& outcome) noexcept;

/// "exit code 3", "killed by signal 11 (Segmentation fault, SIGSEGV)".
[[nodiscard]] std::string describe(const Outcome& outcome);

/// The failure that explains the others. Ends that came so close together that their order means nothing are judged by kind:
/// a signal before an exit code, because ranks that lose a peer exit with a code.
[[nodiscard]] std::optional<Outcome> first_failure(const std::vector<Outcome>& outcomes);

/// How a job came to its end.
struct JobEnd {
  int stop_signal = 0;  // that asked ddprun to stop, before anything failed
  bool timed_out = false;
  int32_t enough = 0;    // successes that make the job one
  std::string option{};  // that allows fewer than all
  int32_t restarts = 0;
  bool each_rank = false;            // say how each ended
  int64_t oom_kills = -1;            // how often the out-of-memory killer struck during the job; -1: unknown
  std::vector<std::string> story{};  // of a job that continued
};

/// Lines without newlines.
struct LastWords {
  int exit_code = 0;
  std::vector<std::string> lines;
};

/// Of ranks with their last lines, oldest first; of hosts only how each ended, because they have reported themselves.
[[nodiscard]] LastWords last_words(const Names& names, std::vector<Outcome> outcomes, const JobEnd& end,
                                   const std::function<std::deque<std::string>(int32_t)>& last_lines);

}  // namespace ddp::ddprun
