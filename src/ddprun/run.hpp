// SPDX-License-Identifier: Apache-2.0
// What a job did, as its report tells it: a plain value. page.hpp makes a page of it, run_json.hpp JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::ddprun {

/// What a rank has counted (trace/live.hpp). Times are nanoseconds.
struct Counts {
  int64_t passes = 0;  // that ended well
  int64_t steps = 0;   // of libddp's optimizers
  int64_t backward_ns = 0;
  int64_t comm_ns = 0;
  int64_t exposed_ns = 0;  // of comm_ns: the program waited for it
  int64_t sent_bytes = 0;
  int64_t step_ns = 0;
  int64_t saves = 0;
  int64_t save_ns = 0;
  int64_t voids = 0;  // passes that were void
  int64_t recoveries = 0;

  Counts& operator+=(const Counts& other) noexcept;
  friend Counts operator-(const Counts& now, const Counts& before) noexcept;
  bool operator==(const Counts&) const = default;
};

/// All of them, with their names.
struct NamedCount {
  const char* name;
  int64_t Counts::*count;
};
inline constexpr NamedCount kCounts[] = {
    {"passes", &Counts::passes},     {"steps", &Counts::steps},           {"backward_ns", &Counts::backward_ns},
    {"comm_ns", &Counts::comm_ns},   {"exposed_ns", &Counts::exposed_ns}, {"sent_bytes", &Counts::sent_bytes},
    {"step_ns", &Counts::step_ns},   {"saves", &Counts::saves},           {"save_ns", &Counts::save_ns},
    {"void_passes", &Counts::voids}, {"recoveries", &Counts::recoveries},
};

inline Counts& Counts::operator+=(const Counts& other) noexcept {
  for (const NamedCount& each : kCounts) this->*each.count += other.*each.count;
  return *this;
}
inline Counts operator-(const Counts& now, const Counts& before) noexcept {
  Counts difference = now;
  for (const NamedCount& each : kCounts) difference.*each.count -= before.*each.count;
  return difference;
}

/// Of the model whose pass ended last.
struct Buckets {
  int64_t gradient_bytes = 0;
  int64_t count = 0;
  int64_t largest = 0;   // bytes
  int64_t smallest = 0;  // bytes
  bool operator==(const Buckets&) const = default;
};

/// A number that the program logs by name (ddp_group_log_metric).
struct ProgramValue {
  std::string name{};
  double value = 0;   // the last
  int64_t times = 0;  // how often it was logged
};

struct NamedHost {
  std::string name{};
  int32_t cores = 0;  // that ddprun may use there; 0: not known
};

/// One rank, over all its starts.
struct RankRun {
  int32_t rank = 0;
  std::string host{};       // "": the machine of ddprun
  int32_t cores = 0;        // of the host; 0: not known
  int32_t transports = -1;  // bits of trace::TransportBit; 0: not known, or its groups had one rank; -1: it made no group
  int32_t starts = 0;
  std::string end{};  // of the last start: "exit code 0"; "": it is not known
  bool failed = false;
  double ended_s = 0;
  int64_t peak_kib = 0;  // largest resident memory that was seen
  Counts counts{};
  Buckets buckets{};
  int64_t waited_ns = 0;                // for other ranks
  int64_t awaited_ns = 0;               // by other ranks, summed over them
  std::string group{};                  // the name of its group; "": none
  std::vector<ProgramValue> program{};  // in the order in which they were seen

  [[nodiscard]] bool runs() const noexcept { return starts > 0 && end.empty(); }
};

/// The job at one moment; counts from its start on.
struct Sample {
  double seconds = 0;
  int64_t steps = 0;   // of the job: all ranks make the same ones
  int64_t passes = 0;  // likewise
  Counts all{};        // summed over the ranks
  int32_t running = 0;
  std::vector<int64_t> resident_kib{};  // by rank, as in Run::ranks; 0: it does not run
  std::vector<double> program{};        // means over the ranks that run, by name, as in Run::names; NaN: of none
};

inline constexpr size_t kMostNames = 8;

struct RunEvent {
  double seconds = 0;
  std::string text{};
};

struct Run {
  std::vector<std::string> command{};
  std::string version{};
  NamedHost machine{};  // of ddprun
  int64_t started_unix_s = 0;
  double seconds = 0;
  int exit_code = 0;
  int32_t world_size = 0;  // more than `ranks` where other machines have a ddprun of their own
  int32_t restarts = 0;
  int32_t least_ranks = 0;  // that had to end with exit code 0; 0: all
  std::string least_by{};   // the option that says so
  std::vector<RankRun> ranks{};
  std::vector<std::string> names{};  // of the program's numbers in the samples: the first kMostNames
  std::vector<Sample> samples{};
  std::vector<RunEvent> events{};
  std::vector<std::string> last_words{};  // ddprun's own lines at the end
};

}  // namespace ddp::ddprun
