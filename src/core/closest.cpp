// SPDX-License-Identifier: Apache-2.0
#include "core/closest.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ddp {
namespace {

/// Typing errors between two words: the distance of Damerau and Levenshtein, without overlapping swaps.
size_t errors_between(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace

std::string_view closest(std::string_view word, std::span<const std::string_view> known) {
  constexpr size_t kShort = 5, kMost = 2;
  std::string_view found;
  size_t fewest = (word.size() < kShort ? 1 : kMost) + 1;
  for (const std::string_view each : known) {
    const size_t errors = errors_between(word, each);
    if (errors < fewest) found = each, fewest = errors;
  }
  return found;
}

}  // namespace ddp
