// Which ranks share a host, and which rails run between the hosts. Values and pure functions; the same on all ranks.
//
//   host 0:  rank 0   rank 1   rank 2      local index l owns rail l: the chain over the l-th rank of every host. There are as many
//   host 1:  rank 3   rank 4               rails as the smallest host has ranks (here 2); rank 2 owns none.
//            rail 0   rail 1
// Tested by unit/comm/host_layout_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/control/control.hpp"

namespace ddp::hierarchy {

struct Layout {
  std::vector<std::vector<int32_t>> hosts;  // ascending ranks of each; hosts by their lowest rank
  int32_t host = 0;                         // of this rank
  int32_t local = 0;                        // this rank's index inside its host
  int32_t rails = 1;

  [[nodiscard]] const std::vector<int32_t>& local_ranks() const noexcept { return hosts[static_cast<size_t>(host)]; }
  [[nodiscard]] int32_t local_size() const noexcept { return static_cast<int32_t>(local_ranks().size()); }
  [[nodiscard]] int32_t host_count() const noexcept { return static_cast<int32_t>(hosts.size()); }
  [[nodiscard]] bool owns_rail() const noexcept { return local < rails; }
  /// The ranks on this rank's rail, by host. Only if owns_rail().
  [[nodiscard]] std::vector<int32_t> rail_ranks() const;
  /// Does some host have two ranks or more?
  [[nodiscard]] bool shares() const noexcept;
  /// The sum in rank order can be taken host by host only if every host's ranks follow each other. "" if they do, else what is in the way:
  /// "ranks 0 and 2 are on one host, but rank 1 is on another".
  [[nodiscard]] std::string interleaved() const;
};

/// `host_ids` by rank; ranks with equal ids share a host. An empty id is a host of its own.
[[nodiscard]] Layout lay_out(const std::vector<std::string>& host_ids, int32_t rank);

/// By the ranks' boot ids.
[[nodiscard]] Layout lay_out(const Control& control);

}  // namespace ddp::hierarchy
