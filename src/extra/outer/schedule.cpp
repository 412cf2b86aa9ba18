// SPDX-License-Identifier: Apache-2.0
#include "extra/outer/schedule.hpp"

#include <algorithm>
#include <numeric>

namespace ddp::outer {

std::vector<int32_t> divide(const std::vector<int64_t>& counts, int32_t fragments) {
  const auto total = static_cast<double>(std::max<int64_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 1));
  std::vector<int32_t> of(counts.size());
  double before = 0;
  int32_t last = -1, next = -1;  // as asked, without gaps
  for (size_t i = 0; i < counts.size(); ++i) {
    const double middle = before + static_cast<double>(counts[i]) / 2;
    const int32_t wanted = std::clamp(static_cast<int32_t>(middle / total * fragments), 0, fragments - 1);
    before += static_cast<double>(counts[i]);
    if (wanted != last) ++next;
    last = wanted;
    of[i] = next;
  }
  return of;
}

}  // namespace ddp::outer
