// SPDX-License-Identifier: Apache-2.0
// What a trace shows between events of a rank: arrows from a mark to the bucket that waited for it, and from a bucket to the
// end of its pass; and counts over time. Values and pure functions.
// Tested by unit/trace/merge_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trace/event.hpp"

namespace ddp::trace {

/// Both ends are inside a span of that row.
struct Arrow {
  int64_t from_row = 0;
  int64_t from_ns = 0;
  int64_t to_row = 0;
  int64_t to_ns = 0;
};

/// Marks are shown as long as this, because an arrow begins in a span.
inline constexpr int64_t kMarkNs = 1;

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

/// Of a ring's events: bytes of the buckets that are reduced, and buckets with a mark that have not started.
[[nodiscard]] std::vector<Count> counts_of(const std::vector<Event>& events);

}  // namespace ddp::trace
