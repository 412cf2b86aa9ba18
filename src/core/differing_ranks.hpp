// SPDX-License-Identifier: Apache-2.0
// What a MISMATCH is about: the ranks that have something else than rank 0.
// Pure; any thread. Tested by capi/errors_of_ranks_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/error.hpp"

namespace ddp {

/// The ranks from 0 to ranks - 1 for which differs(rank) is true.
template <class Differs>
[[nodiscard]] ErrorDetails ranks_that_differ(size_t ranks, const Differs& differs) {
  ErrorDetails details;
  for (size_t rank = 0; rank < ranks; ++rank)
    if (differs(rank)) details.ranks.push_back(static_cast<int32_t>(rank));
  return details;
}

}  // namespace ddp
