// SPDX-License-Identifier: Apache-2.0
// Ranges of a gradient, compared with an array of flags, in random order and with overlaps.

#include "pass/marks.hpp"
#include "support/check.hpp"

/// The first gap of the flags and how many more there are, as the class reports it.
std::string naive_gaps(const std::vector<bool>& flags) {
  std::vector<std::pair<size_t, size_t>> gaps;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i]) continue;
    if (i == 0 || flags[i - 1]) gaps.emplace_back(i, i);
    gaps.back().second = i;
  }
  if (gaps.empty()) return "";
  std::string text = std::to_string(gaps[0].first) + " to " + std::to_string(gaps[0].second);
  if (gaps.size() == 2) text += " and 1 more range";
  if (gaps.size() > 2) text += " and " + std::to_string(gaps.size() - 1) + " more ranges";
  return text;
}

ddp_case(ranges_are_those_of_an_array_of_flags) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::minstd_rand random(seed + 1);
    std::vector<bool> flags(1 + random() % 60);
    pass::MarkedRanges ranges;
    for (int turn = 0; turn < 200; ++turn) {
      const size_t first = random() % flags.size();
      const size_t count = 1 + random() % std::min<size_t>(flags.size() - first, 7);
      bool free = true;
      for (size_t i = first; i < first + count; ++i) free = free && !flags[i];
      expect_equal(ranges.add(static_cast<int64_t>(first), static_cast<int64_t>(count)), free,
                   "seed " + std::to_string(seed));
      for (size_t i = first; free && i < first + count; ++i) flags[i] = true;
      expect_equal(ranges.marked(), static_cast<int64_t>(std::count(flags.begin(), flags.end(), true)),
                   "marked, seed " + std::to_string(seed));
      expect_equal(ranges.missing(static_cast<int64_t>(flags.size()), 1), naive_gaps(flags),
                   "gaps, seed " + std::to_string(seed));
    }
    ranges.clear();
    expect_equal(ranges.marked(), int64_t{0}, "marked after clear");
  }
}

ddp_case(what_is_missing_is_told_in_the_units_of_the_program) {
  pass::MarkedRanges ranges;
  expect(ranges.add(4, 2) && ranges.add(10, 2), "two complex numbers of 8");
  expect_equal(ranges.missing(16, 2), std::string("0 to 1 and 2 more ranges"), "in complex numbers");
}
