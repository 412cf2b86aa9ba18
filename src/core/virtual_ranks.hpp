// SPDX-License-Identifier: Apache-2.0
// Virtual ranks: the leaves of a tree over the parts of the global batch (core/sum_tree.hpp). Each rank holds one node of
// it, and works on the parts below. A pure function; the same on all ranks. Tested by unit/core/sum_tree_test.cpp and
// capi/virtual_ranks_test.cpp.
#pragma once

#include <cstdint>

#include "core/sum_tree.hpp"
#include "ddp/group.h"

namespace ddp {

struct VirtualRanks {
  int32_t total = 1;
  int32_t first = 0;    // of this rank
  int32_t count = 1;    // of this rank
  bool shared = false;  // some rank has several

  /// Without the option every rank is one.
  [[nodiscard]] static VirtualRanks of(const ddp_group_options& options, int32_t rank, int32_t ranks) {
    if (options.virtual_ranks == 0) return {ranks, rank, 1, false};
    const SumNode node = cut_tree(options.virtual_ranks, ranks)[static_cast<size_t>(rank)];
    return {options.virtual_ranks, static_cast<int32_t>(node.lo), static_cast<int32_t>(node.hi - node.lo),
            options.virtual_ranks > ranks};
  }
};

}  // namespace ddp
