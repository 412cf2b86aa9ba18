// SPDX-License-Identifier: Apache-2.0
// Which elements of a gradient are marked in a pass, for one that is written range by range. A sorted list of ranges that do
// not touch; once it was as long as it gets, nothing is allocated.
// Tested by unit/pass/marked_ranges_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::pass {

class MarkedRanges {
 public:
  void clear() noexcept {
    ranges_.clear();
    marked_ = 0;
  }
  /// False: some of these elements are marked already, and nothing is changed. `count` is 1 or more.
  [[nodiscard]] bool add(int64_t first, int64_t count);
  [[nodiscard]] int64_t marked() const noexcept { return marked_; }
  /// Are all elements from first to end marked?
  [[nodiscard]] bool covers(int64_t first, int64_t end) const noexcept;
  /// Of `elements`, those that are missing: "0 to 15", "0 to 15 and 2 more ranges"; empty if all are marked. `unit`: of them
  /// are one for the caller.
  [[nodiscard]] std::string missing(int64_t elements, int64_t unit) const;

 private:
  struct Range {
    int64_t first;
    int64_t end;
  };
  std::vector<Range> ranges_;
  int64_t marked_ = 0;
};

}  // namespace ddp::pass
