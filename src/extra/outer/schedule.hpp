// SPDX-License-Identifier: Apache-2.0
// Which parameters are exchanged together, and when. Pure functions. Tested by unit/extra/schedule_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::outer {

/// The fragment of each parameter, from 0 on and without gaps: consecutive parameters, with about as many elements in each
/// fragment. There are fewer than `fragments` if parameters are few or large.
[[nodiscard]] std::vector<int32_t> divide(const std::vector<int64_t>& counts, int32_t fragments);

/// Is fragment `index` of `fragments` due after step `step` (from 1 on)? Each once in `every` steps, evenly spread.
[[nodiscard]] constexpr bool is_due(int64_t step, int32_t index, int32_t fragments, int64_t every) noexcept {
  const int64_t offset = index * every / fragments;
  return step >= 1 && step % every == offset;
}

}  // namespace ddp::outer
