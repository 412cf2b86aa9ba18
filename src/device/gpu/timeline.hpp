// SPDX-License-Identifier: Apache-2.0
// What a GPU did when, in its streams, for a trace that is on: events with times before and after each piece of work, read
// back when they are done, on the host's clock (device_clock.hpp).
//
// Cost: without a trace one test of a word. With a trace an event where work begins or ends; consecutive work shares events.
// Events are made when the first trace begins, and nothing is allocated later. If no event is free the work is left out. A
// separate thread reads the events back, which disturbs no capture. Only settle() and start() wait for the device. Work that
// is captured into a graph is left out: it runs later. Only start() throws: work that the runtime refuses is left out.
// Threads: any; start() and the end from one at a time.
// Tested by gpu_host/trace_test.cpp.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "trace/gpu_work.hpp"

namespace ddp::trace {
class Watch;
}  // namespace ddp::trace

namespace ddp::gpu {

// Maps the clock of a GPU to the host's. They may run at different speeds, so the latest pair of times counts. Pure. One
// thread.
class DeviceClock {
 public:
  /// The device's time 0 was between these two moments of the host.
  void begin(int64_t not_before_ns, int64_t not_after_ns) noexcept {
    shift_ns_ = not_before_ns + (not_after_ns - not_before_ns) / 2;
  }
  /// So was this moment of the device: its work was enqueued not before, and was known to be done not after.
  void learn(int64_t device_ns, int64_t not_before_ns, int64_t not_after_ns) noexcept {
    if (device_ns + shift_ns_ < not_before_ns)
      shift_ns_ = not_before_ns - device_ns;
    else if (device_ns + shift_ns_ > not_after_ns)
      shift_ns_ = not_after_ns - device_ns;
  }
  [[nodiscard]] int64_t host_ns(int64_t device_ns) const noexcept { return device_ns + shift_ns_; }

 private:
  int64_t shift_ns_ = 0;
};

class Device;

class Timeline {
 public:
  explicit Timeline(const Device& device) noexcept : device_(device) {}
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// What is done from here on is recorded there, as long as a trace is on. Waits for the device, a second at most; it is
  /// not behind other work there. Throws what a GPU throws, TIMED_OUT, OUT_OF_MEMORY.
  void start(std::shared_ptr<trace::Watch> watch);
  [[nodiscard]] bool is_on() const noexcept { return on_.load(std::memory_order_relaxed); }
  /// Shall start() be tried in the n-th trace? Once.
  [[nodiscard]] bool tries(uint32_t trace) noexcept { return tried_.exchange(trace) != trace; }
  /// The row of a stream of the library's own.
  void name_stream(const void* stream, int32_t row) noexcept;
  /// What is done is recorded, by the thread.
  void collect() noexcept;
  /// Records what there is, and waits for it, a second at most.
  void settle() noexcept;

  struct Work {
    trace::GpuWork what = trace::GpuWork::kCopy;
    uint32_t bucket = trace::kNoBucket;
    int64_t bytes = 0;
  };
  static constexpr int32_t kNone = -1;
  /// A point in the stream's order, where work begins: its number, or kNone.
  enum class Rows { kOwn, kNone };  // does the stream get a row?
  [[nodiscard]] int32_t mark(void* stream, Rows rows = Rows::kOwn) noexcept;
  /// This work is between two of them. The first is used up.
  void add(int32_t from, int32_t to, const Work& work) noexcept;
  /// It is not used.
  void drop(int32_t mark) noexcept;

 private:
  static constexpr size_t kMarks = 2048;
  static constexpr size_t kFew = kMarks / 4;  // that are free: what is done is read back

  struct Mark {
    void* event = nullptr;
    int64_t host_ns = 0;  // before it was recorded
    int64_t time_ns = 0;  // of the device; once it is known
    int32_t row = 0;
    int32_t uses = 0;
    bool is_known = false;
  };
  struct Span {
    int32_t from = kNone;
    int32_t to = kNone;
    Work work;
    bool is_done = false;
  };

  enum class Asked { kNothing, kClock, kTimes, kEnd };  // of the thread

  void make_marks();
  void ask(Asked what) noexcept;
  [[nodiscard]] int32_t row_of(const void* stream) noexcept;
  void let_go(int32_t mark) noexcept;
  // the thread
  void read() noexcept;
  [[nodiscard]] int64_t await(int32_t mark);
  void set_clock();
  [[nodiscard]] bool find_out(Mark& mark) noexcept;
  void record(const Span& span, trace::Watch& watch) noexcept;
  void read_back() noexcept;
  void move_base(int32_t mark) noexcept;

  const Device& device_;
  std::atomic<bool> on_{false};
  std::atomic<uint32_t> tried_{0};
  std::mutex mutex_;  // guards the following, except the times of marks
  std::shared_ptr<trace::Watch> watch_;
  std::vector<Mark> marks_;
  std::vector<int32_t> free_;
  std::vector<Span> spans_;  // a ring: those of [first, end) are to be read back
  struct {
    size_t first = 0;
    size_t end = 0;
  } pending_;
  std::array<const void*, trace::GpuRow::kLast + 1> streams_{};
  struct {
    std::thread thread;
    std::condition_variable changed;
    Asked asked = Asked::kNothing;
    std::optional<Error> problem;  // of its clock
  } reader_;
  struct {
    DeviceClock clock;
    int32_t base = kNone;                                  // the mark from which times are measured
    int64_t base_ns = 0;                                   // its time
    std::array<int64_t, trace::GpuRow::kLast + 1> ends{};  // of the last work, by row
  } reading_;                                              // of the thread
};

/// Work on one stream, one piece after the other.
class Timed {
 public:
  Timed(const Device& device, void* stream, uint32_t bucket = trace::kNoBucket) noexcept
      : device_(device), stream_(stream), bucket_(bucket) {}
  /// One piece, as long as it lives.
  Timed(const Device& device, void* stream, trace::GpuWork what, int64_t bytes = 0) noexcept : Timed(device, stream) {
    next(what, bytes);
  }
  ~Timed() { end(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

  /// What is enqueued from here on is this.
  void next(trace::GpuWork what, int64_t bytes = 0) noexcept;
  /// What is enqueued from here on is something else.
  void end() noexcept {
    if (begin_ != Timeline::kNone) close(Timeline::kNone);
  }

 private:
  void close(int32_t mark) noexcept;

  const Device& device_;
  void* const stream_;
  const uint32_t bucket_;
  Timeline::Work work_;
  int32_t begin_ = Timeline::kNone;
};

}  // namespace ddp::gpu
