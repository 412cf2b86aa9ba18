// SPDX-License-Identifier: Apache-2.0
#include "trace/arrows.hpp"

#include <algorithm>

namespace ddp::trace {

void Arrows::mark(const Event& event, int64_t row) {
  for (int64_t bucket = event.peer; event.peer >= 0 && bucket <= event.peer + event.bytes; ++bucket)
    marks_[{event.model, static_cast<uint32_t>(bucket)}].push_back({event.pass, row, event.begin_ns});
}

std::vector<Arrow> Arrows::reduce(const Event& event, int64_t row) {
  std::vector<Arrow> arrows;
  for (const Mark& mark : std::exchange(marks_[{event.model, event.number}], {}))
    if (mark.pass == event.pass && mark.at_ns <= event.begin_ns)
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
    now = {change.at_ns, now.bytes_in_flight + change.bytes_in_flight, now.buckets_waiting + change.buckets_waiting};
    if (!counts.empty() && counts.back().at_ns == now.at_ns)
      counts.back() = now;
    else
      counts.push_back(now);
  }
  return counts;
}

}  // namespace ddp::trace
