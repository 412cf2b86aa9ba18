// SPDX-License-Identifier: Apache-2.0
// What each member adds to a sum: one rank, or all ranks of a host. The sum over all ranks is a balanced tree
// (core/sum_tree.hpp), and a member adds the largest nodes that have leaves of its own alone. Values, equal on all
// members.
// Tested by unit/exchange/shares_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/dtype.hpp"
#include "core/sum_tree.hpp"
#include "device/cpu/reduce.hpp"

namespace ddp::socket {

[[nodiscard]] constexpr bool is_leaf(const SumNode& node) noexcept { return node.hi - node.lo == 1; }

/// Of a node as it is sent: a leaf unchanged, another node unfinished.
[[nodiscard]] inline int64_t node_bytes(const SumNode& node, const cpu::ReduceRule& rule) noexcept {
  return dtype_size(is_leaf(node) ? rule.travel_dtype() : rule.carry_dtype());
}

struct Shares {
  int64_t leaves = 0;                           // of the tree; some may be holes, which do not count
  std::vector<std::vector<int64_t>> positions;  // by member: the leaf of each of its ranks
  std::vector<std::vector<SumNode>> nodes;      // by member, from left to right

  [[nodiscard]] int32_t members() const noexcept { return static_cast<int32_t>(positions.size()); }
  [[nodiscard]] const std::vector<SumNode>& nodes_of(int32_t member) const noexcept {
    return nodes[static_cast<size_t>(member)];
  }
  /// The most ranks of a member.
  [[nodiscard]] size_t most_ranks() const noexcept { return most(positions); }
  /// Bytes that one element of the member's contribution has under way.
  [[nodiscard]] int64_t bytes_of(int32_t member, const cpu::ReduceRule& rule) const noexcept {
    int64_t bytes = 0;
    for (const SumNode& node : nodes_of(member)) bytes += node_bytes(node, rule);
    return bytes;
  }
  [[nodiscard]] int64_t most_bytes(const cpu::ReduceRule& rule) const noexcept {
    int64_t bytes = 0;
    for (int32_t member = 0; member < members(); ++member) bytes = std::max(bytes, bytes_of(member, rule));
    return bytes;
  }

 private:
  template <class Lists>
  [[nodiscard]] static size_t most(const Lists& lists) noexcept {
    size_t found = 0;
    for (const auto& each : lists) found = std::max(found, each.size());
    return found;
  }
};

/// `ranks[member]`, ascending; together they are all ranks of the map.
[[nodiscard]] inline Shares share_out(const LeafMap& map, const std::vector<std::vector<int32_t>>& ranks) {
  Shares shares;
  shares.leaves = map.total();
  for (const std::vector<int32_t>& own : ranks) {
    shares.positions.emplace_back();
    for (const int32_t rank : own) shares.positions.back().push_back(map.position_of(rank));
    shares.nodes.push_back(map.subtrees_of(own));
  }
  return shares;
}

/// Member k is rank k.
[[nodiscard]] inline Shares one_rank_each(const LeafMap& map) {
  std::vector<std::vector<int32_t>> ranks;
  ranks.reserve(static_cast<size_t>(map.ranks()));
  for (int32_t rank = 0; rank < map.ranks(); ++rank) ranks.push_back({rank});
  return share_out(map, ranks);
}
[[nodiscard]] inline Shares one_rank_each(int32_t members) { return one_rank_each(LeafMap::by_rank(members)); }

}  // namespace ddp::socket
