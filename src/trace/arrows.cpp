// SPDX-License-Identifier: Apache-2.0
#include "trace/arrows.hpp"

#include <algorithm>

namespace ddp::trace {

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

namespace {

/// Wraps, because a damaged file may say more bytes than can be added.
int64_t sum(int64_t a, int64_t b) noexcept {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

}  // namespace

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

}  // namespace ddp::trace
