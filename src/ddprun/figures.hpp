// SPDX-License-Identifier: Apache-2.0
// What the numbers of a run mean: pure functions.
#pragma once

#include <string>
#include <vector>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// Between two samples. Negative: unknown.
struct Interval {
  double from_s = 0;
  double to_s = 0;
  double per_second = 0;                // steps, or passes
  double hidden_ms = -1;                // of communication in a pass of a rank, while gradients were still computed
  double exposed_ms = -1;               // likewise, while the program waited
  double share_hidden = -1;             // 0 to 1
  std::vector<int64_t> resident_kib{};  // by rank, at its end
  std::vector<double> program{};        // as in Sample, at its end; not finite: unknown
};

/// A sentence for the reader, and whether it is good news.
struct RunFinding {
  enum class Kind { kGood, kNote, kBad };
  Kind kind = Kind::kNote;
  std::string text{};
};

/// Negative: unknown.
struct RunFigures {
  std::string unit = "steps";  // "passes" if no optimizer of libddp was used
  int64_t total = 0;           // of them
  double per_second = -1;      // median of the intervals
  double share_hidden = -1;    // of all communication
  double hidden_ms = -1;       // per pass and rank
  double exposed_ms = -1;
  double sent_bytes = -1;  // per pass and rank
  int64_t peak_kib = 0;    // of the largest rank
  int32_t largest = -1;    // that rank
  int32_t straggler = -1;  // the rank that others wait for, if one stands out
  std::string no_pass{};   // why there are no passes; "": there are some
  std::vector<Interval> intervals{};
  std::vector<RunFinding> findings{};
};

/// "shared memory", "shared memory and Gloo": of bits as in RankRun; "": not known.
[[nodiscard]] std::string name_transports(int32_t transports);
/// Of all ranks.
[[nodiscard]] int32_t transports_of(const Run& run) noexcept;

/// How much of the communication was hidden; negative if there was none.
[[nodiscard]] double share_hidden(const Counts& counts) noexcept;
/// The rank that the others have waited for, if it is conspicuous; else -1. `waited`: by rank, how long others waited for
/// it, summed over them; `seconds`: how long all ran.
[[nodiscard]] int32_t find_straggler(const std::vector<double>& waited_s, double seconds);
/// At most this number of intervals.
[[nodiscard]] std::vector<Interval> intervals_of(const Run& run, size_t most);
[[nodiscard]] RunFigures figures_of(const Run& run);

}  // namespace ddp::ddprun
