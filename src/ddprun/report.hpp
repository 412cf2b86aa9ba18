// What is said about the end of the ranks: pure functions from outcomes to text and an exit code.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace ddp::ddprun {

/// How one rank ended.
struct Outcome {
  int32_t rank = 0;
  int status = 0;            // as wait() gives it
  double seconds = 0;        // from the start of the job
  int64_t peak_kib = 0;      // largest resident memory, with its own children
  bool ended_by_us = false;  // after we had told it to end
};

[[nodiscard]] bool failed(const Outcome& outcome) noexcept;

/// "SIGTERM".
[[nodiscard]] std::string signal_name(int signal);

/// "rank 2", "ranks 0, 1, 3".
[[nodiscard]] std::string rank_list(const std::vector<int32_t>& ranks);

/// 0 to 255, as a shell says it: 128 + signal for signals.
[[nodiscard]] int exit_code(const Outcome& outcome) noexcept;

/// "exit code 3", "killed by signal 11 (Segmentation fault, SIGSEGV)".
[[nodiscard]] std::string describe(const Outcome& outcome);

/// The failure that explains the others. Ends that came so close together that their order means nothing are judged by kind:
/// a signal before an exit code, because ranks that lose a peer exit with a code.
[[nodiscard]] std::optional<Outcome> first_failure(const std::vector<Outcome>& outcomes);

/// Lines without newlines. `oom_kills`: how often the out-of-memory killer struck during the job; -1: unknown.
[[nodiscard]] std::vector<std::string> failure_report(const Outcome& first, const std::vector<Outcome>& outcomes,
                                                      const std::deque<std::string>& last_lines, int64_t oom_kills);

/// One line for each rank, for --verbose.
[[nodiscard]] std::vector<std::string> rank_report(const std::vector<Outcome>& outcomes);

}  // namespace ddp::ddprun
