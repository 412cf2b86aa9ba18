// SPDX-License-Identifier: Apache-2.0
// Reads a trace back, as JSON, and checks what holds in every trace. It knows nothing of how traces are written.
#pragma once

#include <nlohmann/json.hpp>

#include "support/check.hpp"

namespace ddp::test {

using Json = nlohmann::json;

struct Trace {
  explicit Trace(const std::string& path) {
    std::ifstream file(path);
    expect(file.good(), "a trace at " + path);
    all = Json::parse(file);
    for (const Json& event : all.at("traceEvents")) {
      if (event.at("ph") == "M") continue;
      expect(event.at("ts").get<double>() >= 0, "a time before the beginning");
      const std::string phase = event.at("ph");
      (phase == "X" || phase == "i" ? events : phase == "C" ? counts : arrows).push_back(event);
    }
  }
  [[nodiscard]] std::vector<Json> of(int process, const std::string& part) const {
    std::vector<Json> found;
    for (const Json& event : events)
      if (event.at("pid") == process && event.at("name").get<std::string>().find(part) != std::string::npos)
        found.push_back(event);
    return found;
  }
  [[nodiscard]] const Json& rank(size_t n) const { return all.at("otherData").at("ranks").at(n); }
  Json all;
  std::vector<Json> events, counts, arrows;
};

inline double begin_of(const Json& event) { return event.at("ts").get<double>(); }
inline double end_of(const Json& event) { return begin_of(event) + event.value("dur", 0.0); }

/// In a row of a process, two spans are disjoint or one is inside the other.
inline void expect_rows(const Trace& trace) {
  std::map<std::pair<int, int>, std::vector<Json>> rows;
  for (const Json& event : trace.events)
    if (event.at("ph") == "X") rows[{event.at("pid"), event.at("tid")}].push_back(event);
  for (const auto& [row, events] : rows)
    for (size_t i = 1; i < events.size(); ++i) {
      expect(begin_of(events[i]) >= begin_of(events[i - 1]), "in the order of their begin");
      for (size_t k = 0; k < i; ++k)
        expect(begin_of(events[i]) >= end_of(events[k]) - 0.002 || end_of(events[i]) <= end_of(events[k]) + 0.002,
               "beside or inside: " + events[k].dump() + " " + events[i].dump());
    }
}

/// The span of a rank's row in which this end of an arrow is; null: there is none.
inline Json span_at(const Trace& trace, const Json& end, const std::string& part) {
  for (const Json& event : trace.of(end.at("pid").get<int>(), part))
    if (event.at("tid") == end.at("tid") && begin_of(event) <= begin_of(end) + 1e-6 && begin_of(end) <= end_of(event) + 1e-6)
      return event;
  return nullptr;
}

/// From each mark an arrow goes to its bucket, which has one gradient here, and from each bucket one to the end of its pass.
inline void expect_arrows(const Trace& trace, int rank, int parameters, int passes) {
  std::map<int, std::pair<Json, Json>> arrows;
  for (const Json& end : trace.arrows)
    if (end.at("pid") == rank) (end.at("ph") == "s" ? arrows[end.at("id")].first : arrows[end.at("id")].second) = end;
  int from_marks = 0, to_passes = 0;
  for (const auto& [id, arrow] : arrows) {
    expect(begin_of(arrow.first) <= begin_of(arrow.second), "forward in time");
    const Json mark = span_at(trace, arrow.first, "param"), bucket = span_at(trace, arrow.second, " reducing");
    if (!mark.is_null()) {
      const int parameter = mark.at("name").get<std::string>().back() - '0';
      expect_equal(bucket.at("name").get<std::string>(),
                   "bucket " + std::to_string(parameters - 1 - parameter) + " reducing", "its bucket");
      expect(bucket.at("args").at("pass") == mark.at("args").at("pass"), "of the same pass");
      ++from_marks;
    } else {
      const Json reduced = span_at(trace, arrow.first, " reducing"), pass = span_at(trace, arrow.second, "pass ");
      expect(reduced.at("args").at("pass") == pass.at("args").at("pass"), "to the end of its pass");
      ++to_passes;
    }
  }
  expect_equal(from_marks, passes * parameters, "arrows from marks");
  expect_equal(to_passes, passes * parameters, "arrows to the ends of passes");
}

/// Never below 0, once `bytes` at least, and 0 at the end.
inline void expect_counters(const Trace& trace, int rank, int64_t bytes) {
  for (const auto& [name, unit] : {std::pair("bytes in flight", "bytes"), std::pair("buckets waiting", "buckets")}) {
    int64_t last = -1, most = 0;
    for (const Json& count : trace.counts) {
      if (count.at("pid") != rank || count.at("name") != name) continue;
      last = count.at("args").at(unit).get<int64_t>();
      expect(last >= 0, "below 0: " + count.dump());
      most = std::max(most, last);
    }
    expect_equal(last, int64_t{0}, name);
    expect(most >= (std::string(unit) == "bytes" ? bytes : 1), "the most of " + std::string(name));
  }
}

}  // namespace ddp::test
