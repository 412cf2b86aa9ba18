// SPDX-License-Identifier: Apache-2.0
// The order in which a sum over ranks is formed: a balanced tree over positions 0..n-1.
//
//   sum(lo, hi) = leaf lo                      if hi - lo = 1
//               = sum(lo, mid) + sum(mid, hi)  else; mid = lo + the largest power of two below hi - lo
//
// Every aligned block [k * 2^b, (k + 1) * 2^b) of positions is a node, and so is the last, ragged part of such a block. The
// shape of a node depends only on its width. So a rank that holds all leaves of a node can form its sum alone, with the same
// bits. A leaf that does not count is -0.0 and changes no bit; no position shifts because of it. A LeafMap maps ranks to
// positions; positions without a rank are holes, which do not count. Pure functions and values. Tested by
// unit/core/sum_tree_test.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ddp {

/// The largest power of two below `width`, which is 2 or more: the width of the left half of a node.
[[nodiscard]] constexpr int64_t left_width(int64_t width) noexcept {
  int64_t left = 1;
  while (left < width - left) left *= 2;
  return left;
}

/// Where the halves of node [lo, hi) meet.
[[nodiscard]] constexpr int64_t sum_mid(int64_t lo, int64_t hi) noexcept { return lo + left_width(hi - lo); }

/// leaf(lo), leaf(lo + 1), ... joined as the tree does: join(left, right).
template <class Leaf, class Join>
[[nodiscard]] auto tree_sum(int64_t lo, int64_t hi, const Leaf& leaf, const Join& join) -> decltype(leaf(lo)) {
  if (hi - lo == 1) return leaf(lo);
  const int64_t mid = sum_mid(lo, hi);
  const auto left = tree_sum(lo, mid, leaf, join);
  return join(left, tree_sum(mid, hi, leaf, join));
}

/// A node of the tree: positions [lo, hi).
struct SumNode {
  int64_t lo = 0;
  int64_t hi = 0;
  [[nodiscard]] constexpr bool operator==(const SumNode&) const noexcept = default;
};

enum class LeafOwner : uint8_t { kOthers, kMine, kHole };

/// The largest nodes of the tree over owners.size() positions whose leaves are all mine or holes, from left to right; at
/// least one leaf of each is mine. Together they have all positions that are mine.
[[nodiscard]] inline std::vector<SumNode> maximal_subtrees(const std::vector<LeafOwner>& owners) {
  std::vector<SumNode> found, open;
  if (!owners.empty()) open.push_back({0, static_cast<int64_t>(owners.size())});
  while (!open.empty()) {
    const SumNode node = open.back();
    open.pop_back();
    const auto first = owners.begin() + static_cast<std::ptrdiff_t>(node.lo);
    const auto last = owners.begin() + static_cast<std::ptrdiff_t>(node.hi);
    if (std::find(first, last, LeafOwner::kMine) == last) continue;
    if (std::find(first, last, LeafOwner::kOthers) == last) {
      found.push_back(node);
      continue;
    }
    const int64_t mid = sum_mid(node.lo, node.hi);
    open.push_back({mid, node.hi});
    open.push_back({node.lo, mid});
  }
  return found;
}

/// The same for a set of positions, in any order, of a tree over n positions without holes.
[[nodiscard]] inline std::vector<SumNode> maximal_subtrees(int64_t n, const std::vector<int64_t>& positions) {
  std::vector<LeafOwner> owners(static_cast<size_t>(n), LeafOwner::kOthers);
  for (const int64_t position : positions) owners[static_cast<size_t>(position)] = LeafOwner::kMine;
  return maximal_subtrees(owners);
}

/// The tree over `leaves` positions, cut into `parts` nodes that together have all leaves: the leftmost of the widest nodes
/// is split until there are enough. From left to right. `parts` is 1 to `leaves`.
[[nodiscard]] inline std::vector<SumNode> cut_tree(int64_t leaves, int64_t parts) {
  std::vector<SumNode> nodes{{0, leaves}};
  const auto narrower = [](const SumNode& a, const SumNode& b) { return a.hi - a.lo < b.hi - b.lo; };
  while (static_cast<int64_t>(nodes.size()) < parts) {
    const auto widest = std::max_element(nodes.begin(), nodes.end(), narrower);
    const int64_t mid = sum_mid(widest->lo, widest->hi);
    const SumNode right{mid, widest->hi};
    widest->hi = mid;
    nodes.insert(widest + 1, right);
  }
  return nodes;
}

/// Which rank is which leaf.
class LeafMap {
 public:
  static constexpr int32_t kHole = -1;

  /// Rank r is leaf r: bits do not depend on where ranks run.
  [[nodiscard]] static LeafMap by_rank(int32_t ranks) {
    std::vector<int64_t> positions(static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < positions.size(); ++rank) positions[rank] = static_cast<int64_t>(rank);
    return LeafMap(std::move(positions));
  }
  /// Host h begins at h * (the least power of two that is no smaller than the most ranks on a host), its ranks in rank
  /// order: a host is one node. `host_of_rank`: 0, 1, ... for each rank.
  [[nodiscard]] static LeafMap by_host(const std::vector<int32_t>& host_of_rank) {
    std::vector<int64_t> ranks_of;
    for (const int32_t host : host_of_rank) {
      ranks_of.resize(std::max(ranks_of.size(), static_cast<size_t>(host) + 1));
      ++ranks_of[static_cast<size_t>(host)];
    }
    int64_t block = 1;
    for (const int64_t ranks : ranks_of)
      while (block < ranks) block *= 2;
    std::vector<int64_t> seen(ranks_of.size()), positions;
    for (const int32_t host : host_of_rank) positions.push_back(host * block + seen[static_cast<size_t>(host)]++);
    return LeafMap(std::move(positions));
  }

  /// Rank r holds node r of cut_tree(leaves, ranks) as one leaf, so the sum over ranks is the sum over `leaves` positions.
  [[nodiscard]] static LeafMap of_nodes(int64_t leaves, int32_t ranks) {
    std::vector<int64_t> positions;
    int64_t unit = leaves;  // the largest power of two at whose multiples all nodes begin: one position each is enough
    for (const SumNode& node : cut_tree(leaves, ranks)) {
      positions.push_back(node.lo);
      if (node.lo > 0) unit = std::min(unit, node.lo & -node.lo);
    }
    for (int64_t& position : positions) position /= unit;
    return LeafMap(std::move(positions));
  }

  [[nodiscard]] int32_t ranks() const noexcept { return static_cast<int32_t>(positions_.size()); }
  /// Of the tree: one more than the highest position of a rank.
  [[nodiscard]] int64_t total() const noexcept { return static_cast<int64_t>(ranks_.size()); }
  [[nodiscard]] int64_t position_of(int32_t rank) const noexcept { return positions_[static_cast<size_t>(rank)]; }
  /// kHole: no rank is there.
  [[nodiscard]] int32_t rank_at(int64_t position) const noexcept { return ranks_[static_cast<size_t>(position)]; }

  /// The largest nodes that have leaves of these ranks, and holes, alone; of a single rank its leaf.
  [[nodiscard]] std::vector<SumNode> subtrees_of(const std::vector<int32_t>& ranks) const {
    if (ranks.size() == 1) return {{position_of(ranks.front()), position_of(ranks.front()) + 1}};
    std::vector<LeafOwner> owners(ranks_.size());
    for (size_t at = 0; at < owners.size(); ++at) owners[at] = ranks_[at] == kHole ? LeafOwner::kHole : LeafOwner::kOthers;
    for (const int32_t rank : ranks) owners[static_cast<size_t>(position_of(rank))] = LeafOwner::kMine;
    return maximal_subtrees(owners);
  }

 private:
  explicit LeafMap(std::vector<int64_t> positions) : positions_(std::move(positions)) {
    for (const int64_t position : positions_)
      ranks_.resize(std::max(ranks_.size(), static_cast<size_t>(position) + 1), kHole);
    for (size_t rank = 0; rank < positions_.size(); ++rank)
      ranks_[static_cast<size_t>(positions_[rank])] = static_cast<int32_t>(rank);
  }

  std::vector<int64_t> positions_;  // of each rank
  std::vector<int32_t> ranks_;      // of each position
};

}  // namespace ddp
