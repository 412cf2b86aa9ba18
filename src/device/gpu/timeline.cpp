// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/timeline.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "core/attempt.hpp"
#include "device/gpu/device.hpp"
#include "os/clock.hpp"
#include "os/thread.hpp"
#include "trace/watch.hpp"

namespace ddp::gpu {
namespace {

constexpr int64_t kWaitMs = 1000;
constexpr int64_t kBaseNs = 1'000'000'000;  // a runtime gives times as F32: further away they are too coarse
constexpr int kClockRounds = 8;
constexpr auto kPause = std::chrono::microseconds(50);

}  // namespace

Timeline::~Timeline() {
  if (reader_.thread.joinable()) {
    ask(Asked::kEnd);
    reader_.thread.join();
  }
  if (marks_.empty()) return;
  const Device::Current current(device_, std::nothrow);
  for (const Mark& mark : marks_)
    if (mark.event != nullptr) static_cast<void>(device_.table().event_destroy(mark.event));
}

void Timeline::start(std::shared_ptr<trace::Watch> watch) {
  if (is_on()) return;
  if (free_.capacity() == 0) make_marks();
  if (!reader_.thread.joinable()) reader_.thread = os::start_thread("ddp-gpu-times", [this] { read(); });
  std::unique_lock lock(mutex_);
  watch_ = std::move(watch);
  reader_.asked = Asked::kClock;
  reader_.changed.notify_all();
  reader_.changed.wait(lock, [this] { return reader_.asked != Asked::kClock; });
  if (reader_.problem) throw Error(*reader_.problem);
  on_.store(true, std::memory_order_relaxed);
}

void Timeline::ask(Asked what) noexcept {
  const std::lock_guard lock(mutex_);
  reader_.asked = what;
  reader_.changed.notify_all();
}

void Timeline::read() noexcept {
  static_cast<void>(device_.table().relax_capture());
  static_cast<void>(device_.table().set_device(device_.index()));
  std::unique_lock lock(mutex_);
  for (;;) {
    reader_.changed.wait(lock, [this] { return reader_.asked != Asked::kNothing; });
    const Asked asked = reader_.asked;
    if (asked == Asked::kEnd) return;
    if (asked == Asked::kTimes) reader_.asked = Asked::kNothing;
    lock.unlock();
    std::optional<Error> problem;
    if (asked == Asked::kClock)
      problem = try_to([this] { set_clock(); });
    else
      read_back();
    lock.lock();
    if (asked != Asked::kClock) continue;
    reader_.problem = std::move(problem);
    reader_.asked = Asked::kNothing;
    reader_.changed.notify_all();
  }
}

void Timeline::make_marks() {
  const std::lock_guard lock(mutex_);
  const Device::Current current(device_);
  spans_.resize(kMarks);
  marks_.reserve(kMarks);
  while (marks_.size() < kMarks) {
    Mark mark;
    device_.check(device_.table().event_create(&mark.event, 1), "making an event");
    marks_.push_back(mark);
  }
  free_.reserve(kMarks);
  for (size_t mark = kMarks; mark > 0; --mark) free_.push_back(static_cast<int32_t>(mark) - 1);
}

/// Until a mark is done: when that was seen.
int64_t Timeline::await(int32_t mark) {
  const os::Deadline deadline = os::Deadline::in_ms(kWaitMs);
  for (int32_t done = 0;;) {
    const int32_t code = device_.table().event_query(marks_[static_cast<size_t>(mark)].event, &done);
    if (done != 0) return os::now_ns();
    device_.check(code, "comparing its clock with the host's");
    if (deadline.passed())
      throw Error(DDP_ERROR_TIMED_OUT, device_.name() + " does not come to compare its clock with the host's");
  }
}

/// Of several marks the one that took the shortest.
void Timeline::set_clock() {
  const Stream stream(device_, Stream::Priority::kNormal);
  int64_t best_ns = INT64_MAX;
  for (int round = 0; round < kClockRounds; ++round) {
    const int32_t base = mark(stream.get(), Rows::kNone);
    if (base == kNone) throw Error(DDP_ERROR_INTERNAL, device_.name() + " gives no times");
    const int64_t now = on_error([&] { return await(base); }, [&](const Error&) { drop(base); });
    Mark& moment = marks_[static_cast<size_t>(base)];
    if (now - moment.host_ns >= best_ns) {
      drop(base);
      continue;
    }
    best_ns = now - moment.host_ns;
    if (reading_.base != kNone) drop(reading_.base);
    reading_.base = base;
    reading_.base_ns = 0;
    reading_.clock.begin(moment.host_ns, now);
    moment.time_ns = 0;
    moment.is_known = true;
  }
}

void Timeline::name_stream(const void* stream, int32_t row) noexcept {
  const std::lock_guard lock(mutex_);
  streams_[static_cast<size_t>(row)] = stream;
}

int32_t Timeline::row_of(const void* stream) noexcept {
  const auto named = std::find(streams_.begin(), streams_.begin() + trace::GpuRow::kProgram, stream);
  if (stream != nullptr && named != streams_.begin() + trace::GpuRow::kProgram)
    return static_cast<int32_t>(named - streams_.begin());
  const void* const key = stream != nullptr ? stream : this;  // the default stream
  for (int32_t row = trace::GpuRow::kProgram; row < trace::GpuRow::kLast; ++row) {
    const void*& known = streams_[static_cast<size_t>(row)];
    if (known == nullptr) known = key;
    if (known == key) return row;
  }
  return trace::GpuRow::kLast;
}

int32_t Timeline::mark(void* stream, Rows rows) noexcept {
  const Device::Current current(device_, std::nothrow);
  int32_t capturing = 1;
  if (device_.table().stream_is_capturing(stream, &capturing) != 0 || capturing != 0) return kNone;
  int32_t number = kNone;
  bool are_few = false;
  {
    const std::lock_guard lock(mutex_);
    if (!watch_->is_on()) on_.store(false, std::memory_order_relaxed);
    if (!watch_->is_on() || free_.empty()) return kNone;
    number = free_.back();
    free_.pop_back();
    are_few = free_.size() < kFew;
    Mark& mark = marks_[static_cast<size_t>(number)];
    mark.row = rows == Rows::kNone ? trace::GpuRow::kLast : row_of(stream);
    mark.uses = 1;
    mark.is_known = false;
    mark.host_ns = os::now_ns();
  }
  if (device_.table().event_record(marks_[static_cast<size_t>(number)].event, stream) != 0) {
    drop(number);
    return kNone;
  }
  if (are_few) collect();
  return number;
}

void Timeline::add(int32_t from, int32_t to, const Work& work) noexcept {
  const std::lock_guard lock(mutex_);
  if (pending_.end - pending_.first == spans_.size()) {
    let_go(from);
    return;
  }
  ++marks_[static_cast<size_t>(to)].uses;
  spans_[pending_.end++ % spans_.size()] = {from, to, work, false};
}

void Timeline::drop(int32_t mark) noexcept {
  const std::lock_guard lock(mutex_);
  let_go(mark);
}

// Each mark is in free_ once, which has room for all.
void Timeline::let_go(int32_t mark) noexcept {
  if (--marks_[static_cast<size_t>(mark)].uses == 0) free_.push_back(mark);
}

/// Its time, if it is done.
bool Timeline::find_out(Mark& mark) noexcept {
  if (mark.is_known) return true;
  int32_t done = 0;
  double ms = 0;
  const void* const base = marks_[static_cast<size_t>(reading_.base)].event;
  if (device_.table().event_query(mark.event, &done) != 0 || done == 0) return false;
  const int64_t now = os::now_ns();
  if (device_.table().event_elapsed(const_cast<void*>(base), mark.event, &ms) != 0) return false;
  mark.time_ns = reading_.base_ns + std::llround(ms * 1e6);
  mark.is_known = true;
  reading_.clock.learn(mark.time_ns, mark.host_ns, now);
  return true;
}

/// In a row nothing begins before what came before it has ended, however the clock was corrected.
void Timeline::record(const Span& span, trace::Watch& watch) noexcept {
  const Mark &from = marks_[static_cast<size_t>(span.from)], &to = marks_[static_cast<size_t>(span.to)];
  int64_t& last = reading_.ends[static_cast<size_t>(to.row)];
  trace::Event event;
  event.kind = trace::EventKind::kGpu;
  event.number = span.work.bucket;
  event.bytes = span.work.bytes;
  event.begin_ns = std::max(reading_.clock.host_ns(from.time_ns), last);
  event.end_ns = std::max(reading_.clock.host_ns(to.time_ns), event.begin_ns);
  event.peer = trace::GpuRow{device_.index(), to.row}.number();
  event.pass = static_cast<uint32_t>(span.work.what);
  last = event.end_ns;
  watch.record(event);
}

/// Times are measured from this mark now.
void Timeline::move_base(int32_t mark) noexcept {
  const std::lock_guard lock(mutex_);
  ++marks_[static_cast<size_t>(mark)].uses;
  let_go(reading_.base);
  reading_.base = mark;
  reading_.base_ns = marks_[static_cast<size_t>(mark)].time_ns;
}

void Timeline::read_back() noexcept {
  size_t at = 0, end = 0;
  std::shared_ptr<trace::Watch> watch;
  {
    const std::lock_guard lock(mutex_);
    watch = watch_;
    at = pending_.first;
    end = pending_.end;
  }
  std::array<bool, trace::GpuRow::kLast + 1> waits{};  // by row: what comes later is not done either
  for (; at < end; ++at) {
    Span& span = spans_[at % spans_.size()];
    Mark &from = marks_[static_cast<size_t>(span.from)], &to = marks_[static_cast<size_t>(span.to)];
    bool& row_waits = waits[static_cast<size_t>(to.row)];
    if (span.is_done || row_waits) continue;
    row_waits = !find_out(from) || !find_out(to);
    if (row_waits) continue;
    record(span, *watch);
    span.is_done = true;
    if (to.time_ns - reading_.base_ns > kBaseNs) move_base(span.to);
    const std::lock_guard lock(mutex_);
    let_go(span.from);
    let_go(span.to);
  }
  const std::lock_guard lock(mutex_);
  while (pending_.first < end && spans_[pending_.first % spans_.size()].is_done) ++pending_.first;
}

void Timeline::collect() noexcept {
  if (is_on()) ask(Asked::kTimes);
}

void Timeline::settle() noexcept {
  const os::Deadline deadline = os::Deadline::in_ms(kWaitMs);
  const auto is_empty = [this] {
    const std::lock_guard lock(mutex_);
    return pending_.first == pending_.end;
  };
  while (is_on()) {
    collect();
    if (is_empty() || deadline.passed()) return;
    std::this_thread::sleep_for(kPause);
  }
}

void Timed::next(trace::GpuWork what, int64_t bytes) noexcept {
  if (begin_ == Timeline::kNone && !device_.timeline().is_on()) return;
  const int32_t mark = device_.timeline().mark(stream_);
  if (begin_ != Timeline::kNone) close(mark);
  begin_ = mark;
  work_ = {what, bucket_, bytes};
}

/// `mark`: where it ends; kNone: here.
void Timed::close(int32_t mark) noexcept {
  Timeline& timeline = device_.timeline();
  const int32_t end = mark != Timeline::kNone ? mark : timeline.mark(stream_);
  const int32_t begin = std::exchange(begin_, Timeline::kNone);
  if (end == Timeline::kNone) return timeline.drop(begin);
  timeline.add(begin, end, work_);
  if (mark == Timeline::kNone) timeline.drop(end);
}

}  // namespace ddp::gpu
