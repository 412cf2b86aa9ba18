// SPDX-License-Identifier: Apache-2.0
// What happened to the ranks of a job, for its last words. A plain value.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace ddp::ddprun {

class Story {
 public:
  /// `seconds`: from the start of the job.
  void add(double seconds, const std::string& text);
  struct Event {
    double seconds = 0;
    std::string text{};
  };
  /// Oldest first. Of a long story the beginning and the end.
  [[nodiscard]] std::vector<Event> events() const;
  /// "  12.3 s  rank 2: killed by signal 9", one for each of them.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  std::vector<Event> beginning_;
  std::deque<Event> end_;
  int64_t left_out_ = 0;
};

}  // namespace ddp::ddprun
