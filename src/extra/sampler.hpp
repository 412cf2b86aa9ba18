// SPDX-License-Identifier: Apache-2.0
// Which samples are whose: an epoch's order, padded or cut so that every rank gets the same number, dealt out in turn.
//
// The semantics are those of PyTorch's DistributedSampler: the order is a permutation or the identity; with `drop_last` its
// tail is dropped, otherwise it starts over until the ranks are even (several times if there are fewer samples than ranks);
// rank r takes positions r, r + size, r + 2 size ... With `seen` they begin at that position of the same order, so that the
// epoch continues on another number of ranks. The orders themselves are our own (extra/permutation.hpp) and depend on seed
// and epoch as a pair, not on their sum. Pure functions of the fields, which serve every size that int64_t can hold. Cost:
// constant time per index, no allocation. Any thread. Tested by unit/extra/sampler_test.cpp and capi/sampler_test.c.
#pragma once

#include <cstdint>

#include "ddp/sampler.h"

namespace ddp::extra {

/// Throws INVALID_ARGUMENT that names the wrong field; `function` is the caller's name.
void check_sampler(const ddp_sampler& sampler, const char* function);

/// Indices per rank and epoch, of a checked sampler.
[[nodiscard]] int64_t sampler_count(const ddp_sampler& sampler) noexcept;

/// Indices [first, first + count) of this rank's share; the range must be within sampler_count.
void sampler_fill(const ddp_sampler& sampler, int64_t epoch, int64_t first, int64_t count, int64_t* indices) noexcept;

}  // namespace ddp::extra
