// SPDX-License-Identifier: Apache-2.0
#include "exchange/waits.hpp"

#include <algorithm>

#include "trace/watch.hpp"

namespace ddp::collective {

void Waits::note(const Wait& wait, const Late& late) noexcept {
  const int64_t begin = std::max(wait.begin_ns, calls_.stands_since(wait.channel));
  const int64_t passed_on = std::max(begin, wait.end_ns - std::max<int64_t>(late.ns, 0));
  add(wait.rank, begin, std::min(passed_on, wait.end_ns));
  add(late.rank, passed_on, wait.end_ns);
}

void Waits::add(int32_t rank, int64_t begin_ns, int64_t end_ns) noexcept {
  if (rank < 0 || rank >= ranks() || end_ns <= begin_ns) return;
  waited_ns_[static_cast<size_t>(rank)].fetch_add(end_ns - begin_ns, std::memory_order_relaxed);
  if (trace::Watch* const watch = calls_.watch())
    watch->end_wait(known_as_.empty() ? rank : known_as_[static_cast<size_t>(rank)], begin_ns, end_ns);
}

}  // namespace ddp::collective
