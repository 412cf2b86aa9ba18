// SPDX-License-Identifier: Apache-2.0
#include "trace/merge.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/attempt.hpp"
#include "core/json_text.hpp"
#include "os/file.hpp"
#include "os/own_files.hpp"
#include "trace/event.hpp"
#include "trace/gpu_work.hpp"

namespace ddp::trace {
namespace {

// What a trace shows between events of a rank: arrows from a mark to the bucket that waited for it, and from a bucket to the
// end of its pass; and counts over time. Values and pure functions.
/// Both ends are inside a span of that row.
struct Arrow {
  int64_t from_row = 0;
  int64_t from_ns = 0;
  int64_t to_row = 0;
  int64_t to_ns = 0;
};

/// Marks are shown as long as this, because an arrow begins in a span.
constexpr int64_t kMarkNs = 1;

/// Finds the arrows of a ring.
class Arrows {
 public:
  /// The next event by its begin, and the row that shows it. Returns the arrows that end there.
  [[nodiscard]] std::vector<Arrow> take(const Event& event, int64_t row);

 private:
  struct Mark {
    uint32_t pass = 0;
    int64_t first_bucket = 0, last_bucket = 0;
    int64_t row = 0;
    int64_t at_ns = 0;
  };
  struct Pass {
    uint32_t number = 0;
    int64_t row = 0;
    int64_t end_ns = 0;
  };
  void mark(const Event& event, int64_t row);
  [[nodiscard]] std::vector<Arrow> reduce(const Event& event, int64_t row);

  std::map<uint32_t, std::vector<Mark>> marks_;  // by model: those of its last pass
  std::map<uint32_t, Pass> passes_;              // by model: the last
};

/// From this moment on.
struct Count {
  int64_t at_ns = 0;
  int64_t bytes_in_flight = 0;
  int64_t buckets_waiting = 0;
};

void Arrows::mark(const Event& event, int64_t row) {
  std::vector<Mark>& marks = marks_[event.model];
  if (!marks.empty() && marks.back().pass != event.pass) marks.clear();
  if (event.peer >= 0) marks.push_back({event.pass, event.peer, event.peer + event.bytes, row, event.begin_ns});
}

std::vector<Arrow> Arrows::reduce(const Event& event, int64_t row) {
  std::vector<Arrow> arrows;
  for (const Mark& mark : marks_[event.model])
    if (mark.pass == event.pass && mark.first_bucket <= event.number && event.number <= mark.last_bucket &&
        mark.at_ns <= event.begin_ns)
      arrows.push_back({mark.row, mark.at_ns, row, event.begin_ns});
  const auto pass = passes_.find(event.model);
  if (pass == passes_.end() || pass->second.number != event.pass || pass->second.end_ns <= event.begin_ns) return arrows;
  const int64_t done_ns = std::max(event.begin_ns, std::min(event.end_ns, pass->second.end_ns) - 1);
  arrows.push_back({row, done_ns, pass->second.row, pass->second.end_ns - 1});
  return arrows;
}

std::vector<Arrow> Arrows::take(const Event& event, int64_t row) {
  if (event.kind == EventKind::kPass) passes_[event.model] = {event.pass, row, event.end_ns};
  if (event.kind == EventKind::kMark) mark(event, row);
  return event.kind == EventKind::kReducing ? reduce(event, row) : std::vector<Arrow>();
}

/// Wraps, because a damaged file may say more bytes than can be added.
int64_t sum(int64_t a, int64_t b) noexcept {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

/// Of a ring's events: bytes of the buckets that are reduced, and buckets with a mark that have not started.
std::vector<Count> counts_of(const std::vector<Event>& events) {
  std::vector<Count> changes;
  for (const Event& event : events) {
    const bool waits = event.kind == EventKind::kWaiting;
    if (!waits && event.kind != EventKind::kReducing) continue;
    const int64_t bytes = waits ? 0 : event.bytes, bucket = waits ? 1 : 0;
    changes.push_back({event.begin_ns, bytes, bucket});
    changes.push_back({event.end_ns, -bytes, -bucket});
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Count& a, const Count& b) { return a.at_ns < b.at_ns; });
  std::vector<Count> counts;
  Count now;
  for (const Count& change : changes) {
    const int64_t in_flight = sum(now.bytes_in_flight, change.bytes_in_flight);
    now = {change.at_ns, in_flight, now.buckets_waiting + change.buckets_waiting};
    if (!counts.empty() && counts.back().at_ns == now.at_ns)
      counts.back() = now;
    else
      counts.push_back(now);
  }
  return counts;
}

/// Rows of a process, in the order in which they are shown.
enum class Row { kCalls, kPasses, kMarks, kBuckets, kWaits, kGpu };
constexpr std::array kRowNames = {"calls", "passes", "marks", "buckets", "waits", "GPU"};
constexpr int32_t kMostLanes = 1000;
constexpr std::array kWorkNames = {"pack",   "all-reduce", "reduce-scatter", "all-gather", "broadcast", "unpack",
                                   "divide", "norm",       "decide",         "optimizer",  "averages",  "copy"};
static_assert(kWorkNames.size() == static_cast<size_t>(kLastGpuWork) + 1);

Row row_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::kPass:
    case EventKind::kVoid: return Row::kPasses;
    case EventKind::kMark: return Row::kMarks;
    case EventKind::kWaiting:
    case EventKind::kReducing: return Row::kBuckets;
    case EventKind::kWait:
    case EventKind::kGather: return Row::kWaits;
    case EventKind::kGpu: return Row::kGpu;
    default: return Row::kCalls;
  }
}

bool is_moment(EventKind kind) noexcept { return kind == EventKind::kVoid; }

std::string microseconds(int64_t ns) {
  char text[40];
  snprintf(text, sizeof text, "%s%lld.%03lld", ns < 0 ? "-" : "", static_cast<long long>(std::abs(ns) / 1000),
           static_cast<long long>(std::abs(ns) % 1000));
  return text;
}

std::string gpu_work_of(const Event& event) {
  const std::string work = event.pass < kWorkNames.size() ? kWorkNames[event.pass] : "work";
  return event.number == kNoBucket ? work : "bucket " + std::to_string(event.number) + " " + work;
}

/// "GPU 0 communication"
std::string name_of(const GpuRow& row) {
  const std::string device = "GPU " + std::to_string(row.device);
  if (row.stream == GpuRow::kCommunication) return device + " communication";
  if (row.stream == GpuRow::kUpdates) return device + " updates beside it";
  if (row.stream == GpuRow::kLast) return device + " other streams";
  return device + " program's stream " + std::to_string(row.stream - GpuRow::kProgram + 1);
}

std::string name_of(const Event& event, const Ring& ring) {
  const std::string number = std::to_string(event.number);
  switch (event.kind) {
    case EventKind::kCall: {
      const auto known = ring.calls.find(event.number);
      return known != ring.calls.end() ? known->second : "call " + number;
    }
    case EventKind::kPass: return "pass " + number;
    case EventKind::kVoid: return "void pass";
    case EventKind::kMark: {
      const auto known = ring.parameters.find({event.model, event.number});
      return known != ring.parameters.end() ? known->second : "parameter " + number;
    }
    case EventKind::kWaiting: return "bucket " + number + " waiting";
    case EventKind::kReducing: return "bucket " + number + " reducing";
    case EventKind::kStep: return "step";
    case EventKind::kSave: return "save";
    case EventKind::kWait: return event.peer < 0 ? "wait" : "wait for rank " + std::to_string(event.peer);
    case EventKind::kGather: return "gather";
    case EventKind::kGpu: return gpu_work_of(event);
    default: return "?";
  }
}

/// Which row of several each span gets, so that spans of a row are disjoint or nested.
class Lanes {
 public:
  int32_t of(const Event& event) {
    for (size_t lane = 0; lane < ends_.size(); ++lane) {
      std::vector<int64_t>& open = ends_[lane];
      while (!open.empty() && open.back() <= event.begin_ns) open.pop_back();
      if (!open.empty() && open.back() < event.end_ns && lane + 1 < static_cast<size_t>(kMostLanes)) continue;
      open.push_back(event.end_ns);
      return static_cast<int32_t>(lane);
    }
    ends_.push_back({event.end_ns});
    return static_cast<int32_t>(ends_.size()) - 1;
  }

 private:
  std::vector<std::vector<int64_t>> ends_;  // of the spans that are open, by row, the innermost last
};

/// Streams of GPUs (GpuRow::number), in order: each has a row.
std::vector<int32_t> streams_of(const Ring& ring) {
  std::set<int32_t> streams;
  for (const Event& event : ring.events)
    if (event.kind == EventKind::kGpu) streams.insert(event.peer);
  return {streams.begin(), streams.end()};
}

class Writer {
 public:
  explicit Writer(const std::function<void(std::string_view)>& out) : out_(out) {}

  void write(std::vector<Ring>& rings) {
    std::stable_sort(rings.begin(), rings.end(), [](const Ring& a, const Ring& b) {
      return std::pair(a.owner.rank, a.owner.start_ns) < std::pair(b.owner.rank, b.owner.start_ns);
    });
    align(rings);
    say("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"libddp\",\"clock\":\"CLOCK_MONOTONIC of " +
        (rings.empty() ? std::string("nobody") : "rank " + std::to_string(rings.front().owner.rank)) + "\",\"ranks\":[");
    for (size_t i = 0; i < rings.size(); ++i) say((i > 0 ? ",\n" : "\n") + about(rings[i], i));
    say("]},\n\"traceEvents\":[");
    for (size_t i = 0; i < rings.size(); ++i) write_ring(rings[i], i);
    say("\n]}\n");
    flush();
  }

 private:
  static constexpr size_t kPiece = 1 << 16;

  void say(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() >= kPiece) flush();
  }
  void flush() {
    out_(buffer_);
    buffer_.clear();
  }

  /// Ranks of one kernel have one clock. Of others, gathers say it.
  void align(const std::vector<Ring>& rings) {
    int64_t first = INT64_MAX;
    std::set<int64_t> taken;
    for (const Ring& ring : rings) {
      const Ring& base = rings.front();
      const bool same = std::string_view(ring.owner.boot) == base.owner.boot;
      clocks_.push_back(same ? ClockBounds{} : compare_clocks(base.gathers, ring.gathers));
      int64_t number = ring.owner.rank;
      while (!taken.insert(number).second) number += 1'000'000;  // a dead one had this place before
      numbers_.push_back(number);
      if (!ring.events.empty()) first = std::min(first, ring.events.front().begin_ns + offset(clocks_.size() - 1));
    }
    origin_ns_ = first == INT64_MAX ? 0 : first;
  }
  [[nodiscard]] int64_t offset(size_t i) const { return clocks_[i] ? clocks_[i]->offset_ns : 0; }

  [[nodiscard]] std::string about(const Ring& ring, size_t i) const {
    std::string text = "{\"rank\":" + std::to_string(ring.owner.rank) + ",\"process\":" + std::to_string(numbers_[i]) +
                       ",\"host\":" + json_text(ring.owner.host) + ",\"pid\":" + std::to_string(ring.owner.pid) +
                       ",\"events\":" + std::to_string(ring.events.size()) + ",\"lost\":" + std::to_string(ring.lost) +
                       ",\"torn\":" + std::to_string(ring.torn);
    if (!clocks_[i]) return text + ",\"clock\":\"not compared\"}";
    return text + ",\"clock_offset_us\":" + microseconds(clocks_[i]->offset_ns) +
           ",\"clock_error_us\":" + microseconds(clocks_[i]->error_ns) + "}";
  }

  void entry(const std::string& text) {
    say(std::exchange(began_, true) ? ",\n" : "\n");
    say(text);
  }
  void metadata(const std::string& process, int64_t row, const char* what, const std::string& arguments) {
    entry("{\"ph\":\"M\",\"pid\":" + process + ",\"tid\":" + std::to_string(row) + ",\"name\":\"" + what + "\",\"args\":{" +
          arguments + "}}");
  }

  void write_ring(const Ring& ring, size_t i) {
    const std::string process = std::to_string(numbers_[i]);
    std::string name =
        "rank " + std::to_string(ring.owner.rank) + " (" + ring.owner.host + ", pid " + std::to_string(ring.owner.pid) + ")";
    metadata(process, 0, "process_name", "\"name\":" + json_text(name));
    metadata(process, 0, "process_sort_index", "\"sort_index\":" + process);
    std::map<int32_t, Lanes> lanes;  // by row
    const std::vector<int32_t> streams = streams_of(ring);
    std::set<int64_t> named;
    Arrows arrows;
    for (const Event& event : ring.events) {
      auto row = static_cast<int32_t>(row_of(event.kind));
      std::string row_name = kRowNames[static_cast<size_t>(row)];
      if (event.kind == EventKind::kGpu) {
        row_name = name_of(GpuRow::of(event.peer));
        row += static_cast<int32_t>(std::lower_bound(streams.begin(), streams.end(), event.peer) - streams.begin());
      }
      const int32_t lane = is_moment(event.kind) || event.kind == EventKind::kMark ? 0 : lanes[row].of(event);
      const int64_t thread = int64_t{row} * kMostLanes + lane + 1;
      if (named.insert(thread).second) {
        const std::string more = lane == 0 ? "" : " " + std::to_string(lane + 1);
        metadata(process, thread, "thread_name", "\"name\":" + json_text(row_name + more));
        metadata(process, thread, "thread_sort_index", "\"sort_index\":" + std::to_string(thread));
      }
      entry(text_of(event, ring, process, thread, offset(i) - origin_ns_));
      for (const Arrow& arrow : arrows.take(event, thread)) show(arrow, process, offset(i) - origin_ns_);
    }
    for (const Count& count : counts_of(ring.events)) show(count, process, offset(i) - origin_ns_);
  }

  void show(const Arrow& arrow, const std::string& process, int64_t shift_ns) {
    const std::string id = std::to_string(++arrows_);
    const auto end = [&](const char* phase, int64_t row, int64_t at_ns, const char* more) {
      entry("{\"ph\":\"" + std::string(phase) + "\",\"id\":" + id + ",\"pid\":" + process +
            ",\"tid\":" + std::to_string(row) + ",\"ts\":" + microseconds(at_ns + shift_ns) +
            ",\"name\":\"gradient\",\"cat\":\"flow\"" + more + "}");
    };
    end("s", arrow.from_row, arrow.from_ns, "");
    end("f", arrow.to_row, arrow.to_ns, ",\"bp\":\"e\"");
  }
  void show(const Count& count, const std::string& process, int64_t shift_ns) {
    const auto counter = [&](const char* name, const char* unit, int64_t value) {
      entry("{\"ph\":\"C\",\"pid\":" + process + ",\"tid\":0,\"ts\":" + microseconds(count.at_ns + shift_ns) +
            ",\"name\":\"" + name + "\",\"args\":{\"" + unit + "\":" + std::to_string(value) + "}}");
    };
    counter("bytes in flight", "bytes", count.bytes_in_flight);
    counter("buckets waiting", "buckets", count.buckets_waiting);
  }

  static std::string text_of(const Event& event, const Ring& ring, const std::string& process, int64_t thread,
                             int64_t shift_ns) {
    std::string text = "{\"ph\":\"" + std::string(is_moment(event.kind) ? "i" : "X") + "\",\"pid\":" + process +
                       ",\"tid\":" + std::to_string(thread) + ",\"ts\":" + microseconds(event.begin_ns + shift_ns);
    if (is_moment(event.kind))
      text += ",\"s\":\"t\"";
    else
      text += ",\"dur\":" + microseconds(event.kind == EventKind::kMark ? kMarkNs : event.end_ns - event.begin_ns);
    text += ",\"name\":" + json_text(name_of(event, ring)) + ",\"cat\":\"" +
            kRowNames[static_cast<size_t>(row_of(event.kind))] + "\",\"args\":{";
    std::string arguments;
    const auto add = [&](const char* what, int64_t value) {
      arguments += (arguments.empty() ? "\"" : ",\"") + std::string(what) + "\":" + std::to_string(value);
    };
    if (event.model != 0) add("model", event.model), add("pass", event.pass);
    if (event.bytes != 0 && event.kind != EventKind::kMark) add("bytes", event.bytes);
    if (event.kind == EventKind::kWait) add("peer", event.peer);
    return text + arguments + "}}";
  }

  const std::function<void(std::string_view)>& out_;
  std::string buffer_;
  bool began_ = false;
  int64_t origin_ns_ = 0;
  std::vector<std::optional<ClockBounds>> clocks_;  // by ring
  std::vector<int64_t> numbers_;                    // of the processes in the file, by ring
  int64_t arrows_ = 0;                              // that were written
};

}  // namespace

void merge(std::vector<Ring> rings, const std::function<void(std::string_view)>& out) { Writer(out).write(rings); }

void merge_to(const std::string& path, std::vector<Ring> rings) {
  const std::string beside = path + "." + std::to_string(getpid()) + ".new";
  const os::Fd fd = os::make_new_file(beside, O_WRONLY, 0666);
  on_error(
      [&] {
        merge(std::move(rings), [&](std::string_view text) {
          os::write_all(fd.get(), text.data(), static_cast<int64_t>(text.size()), beside);
        });
        if (os::file_table().rename(AT_FDCWD, beside.c_str(), AT_FDCWD, path.c_str()) != 0)
          throw os::file_error("rename", beside, errno);
      },
      [&](const Error&) { (void)os::file_table().unlink(AT_FDCWD, beside.c_str()); });
}

}  // namespace ddp::trace
