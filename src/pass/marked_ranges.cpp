// SPDX-License-Identifier: Apache-2.0
#include "pass/marked_ranges.hpp"

#include <algorithm>

namespace ddp::pass {

bool MarkedRanges::add(int64_t first, int64_t count) {
  const int64_t end = first + count;
  const auto next =
      std::lower_bound(ranges_.begin(), ranges_.end(), first, [](const Range& each, int64_t at) { return each.first < at; });
  const bool has_next = next != ranges_.end(), has_previous = next != ranges_.begin();
  if ((has_next && next->first < end) || (has_previous && (next - 1)->end > first)) return false;
  const bool joins_next = has_next && next->first == end, joins_previous = has_previous && (next - 1)->end == first;
  if (joins_next && joins_previous) {
    (next - 1)->end = next->end;
    ranges_.erase(next);
  } else if (joins_next) {
    next->first = first;
  } else if (joins_previous) {
    (next - 1)->end = end;
  } else {
    ranges_.insert(next, Range{first, end});
  }
  marked_ += count;
  return true;
}

bool MarkedRanges::covers(int64_t first, int64_t end) const noexcept {
  const auto behind =
      std::upper_bound(ranges_.begin(), ranges_.end(), first, [](int64_t at, const Range& each) { return at < each.first; });
  return behind != ranges_.begin() && (behind - 1)->end >= end;
}

std::string MarkedRanges::missing(int64_t elements, int64_t unit) const {
  std::string text;
  int64_t at = 0, gaps = 0;
  const auto gap = [&](int64_t end) {
    if (at < end && gaps++ == 0) text = std::to_string(at / unit) + " to " + std::to_string(end / unit - 1);
  };
  for (const Range& range : ranges_) {
    gap(range.first);
    at = range.end;
  }
  gap(elements);
  if (gaps > 1) text += " and " + std::to_string(gaps - 1) + (gaps > 2 ? " more ranges" : " more range");
  return text;
}

}  // namespace ddp::pass
