// SPDX-License-Identifier: Apache-2.0
// Which ranks share a host, which rails run between the hosts, and which leaf of the sum each rank is. Values and pure
// functions; the same on all ranks.
//
//   host 0:  rank 0   rank 1   rank 2      local index l owns rail l: it links the l-th ranks of all hosts. There are
//   host 1:  rank 3   rank 4               as many rails as the smallest host has ranks (here 2); rank 2 owns none.
//            rail 0   rail 1
// Tested by unit/exchange/host_layout_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/control.hpp"
#include "core/sum_tree.hpp"
#include "ddp/group.h"

namespace ddp::hierarchy {

struct Layout {
  std::vector<std::vector<int32_t>> hosts;  // ascending ranks of each; hosts by their lowest rank
  int32_t host = 0;                         // of this rank
  int32_t local = 0;                        // this rank's index inside its host
  int32_t rails = 1;
  LeafMap map = LeafMap::by_rank(0);

  [[nodiscard]] const std::vector<int32_t>& local_ranks() const noexcept { return hosts[static_cast<size_t>(host)]; }
  [[nodiscard]] int32_t local_size() const noexcept { return static_cast<int32_t>(local_ranks().size()); }
  [[nodiscard]] int32_t host_count() const noexcept { return static_cast<int32_t>(hosts.size()); }
  [[nodiscard]] bool owns_rail() const noexcept { return local < rails; }
  /// The ranks on this rank's rail, by host. Only if owns_rail().
  [[nodiscard]] std::vector<int32_t> rail_ranks() const;
  /// Does some host have two ranks or more?
  [[nodiscard]] bool shares() const noexcept;
  /// What the busiest host sends for a large sum, over what it would send if every host were one node of the tree; F32.
  [[nodiscard]] double traffic() const;
};

/// `host_ids` by rank; ranks with equal ids share a host. An empty id is a host of its own. Of `options` the order of sums
/// counts.
[[nodiscard]] Layout lay_out(const std::vector<std::string>& host_ids, int32_t rank, const ddp_group_options& options = {});

/// By the ranks' boot ids.
[[nodiscard]] Layout lay_out(const bootstrap::Control& control, const ddp_group_options& options = {});

}  // namespace ddp::hierarchy
