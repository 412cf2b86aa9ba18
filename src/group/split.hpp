// SPDX-License-Identifier: Apache-2.0
// Groups of some ranks of a group, as MPI_Comm_split makes them. A new group has its own control plane and transport and
// outlives its parent.
// Tested by unit/group/split_test.cpp and conformance/split_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "group/group.hpp"

namespace ddp::group {

/// What a rank asks for. A negative color: no group.
struct SplitWish {
  int32_t color = 0;
  int32_t key = 0;
};

/// The parent's ranks in the group of `rank`, in the order of the new group: by key, then by rank. Empty without a color.
/// Pure.
[[nodiscard]] std::vector<int32_t> split_members(const std::vector<SplitWish>& wishes, int32_t rank);

/// NULL without a color. If it fails on one rank it fails on all: with one error, and the parent stays whole; or the parent
/// breaks. Collective over the parent.
[[nodiscard]] std::shared_ptr<Group> split_group(Group& parent, const SplitWish& wish, const ddp_group_options& options);

}  // namespace ddp::group
