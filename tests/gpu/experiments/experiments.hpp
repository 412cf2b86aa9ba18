// SPDX-License-Identifier: Apache-2.0
// What only hardware shows: figures with units, and a verdict where there is a right answer. Each part is a run of its own,
// so that one that dies takes no other with it; tests/gpu/run.sh goes through them.
//
// Everything goes through the module's table, so the same program runs on the fake GPU (tests/support/fake_gpu): there it
// shows that the parts work, its figures mean nothing, and no time is judged.
#pragma once

#include "gpu/support/place.hpp"

namespace ddp::experiments {

struct Options {
  bool quick = false;
  [[nodiscard]] int repetitions(int usual) const { return quick ? std::max(usual / 5, 3) : usual; }
};

/// Prints a line for each figure and verdict, at once.
class Report {
 public:
  explicit Report(std::string part) : part_(std::move(part)) {}
  void figure(const std::string& what, double value, const char* unit, const std::string& note = "");
  /// Something that must hold.
  void verdict(const std::string& what, bool holds, const std::string& note = "");
  /// As verdict, about a time or a rate: on the fake GPU it is not judged.
  void timed_verdict(const std::string& what, bool holds, const std::string& note = "");
  void not_here(const std::string& what, const std::string& why);
  [[nodiscard]] int failures() const { return failures_; }

 private:
  void line(const char* mark, const std::string& what, const std::string& value, const std::string& note) const;
  std::string part_;
  int failures_ = 0;
};

using Clock = std::chrono::steady_clock;
inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
/// The same clock in all processes of a machine.
inline double now_ms() { return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count(); }

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// An event with a time.
class Event : test::NotCopied {
 public:
  Event() { GPU_CALL(event_create(&event_, 1)); }
  ~Event() { (void)test::card::table().event_destroy(event_); }
  void record(void* stream) const { GPU_CALL(event_record(event_, stream)); }
  void wait() const { GPU_CALL(event_synchronize(event_)); }
  [[nodiscard]] bool is_done() const {
    int32_t done = 0;
    GPU_CALL(event_query(event_, &done));
    return done != 0;
  }
  [[nodiscard]] double ms_from(const Event& begin) const {
    double ms = 0;
    GPU_CALL(event_elapsed(begin.event_, event_, &ms));
    return ms;
  }

 private:
  void* event_ = nullptr;
};

/// Page-locked host memory.
class Pinned : test::NotCopied {
 public:
  explicit Pinned(int64_t bytes) { GPU_CALL(host_alloc(&host_, &device_, bytes)); }
  ~Pinned() {
    (void)test::card::table().synchronize();
    (void)test::card::table().host_free(host_);
  }
  [[nodiscard]] void* host() const { return host_; }
  [[nodiscard]] void* device() const { return device_; }

 private:
  void *host_ = nullptr, *device_ = nullptr;
};

// The parts. Those that fork do so before the process knows of a GPU.
void measure_stop_word(Report& report, const Options& options);
void measure_rates(Report& report, const Options& options);
void destroy_with_work_pending(Report& report, const Options& options);
void fork_and_leave(Report& report, const Options& options);
void kill_while_connecting(Report& report, const Options& options);
void measure_contexts(Report& report, const Options& options);
void capture_beside_others(Report& report, const Options& options);
void measure_reproducible(Report& report, const Options& options);

}  // namespace ddp::experiments
