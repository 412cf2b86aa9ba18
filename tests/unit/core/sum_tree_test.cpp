// SPDX-License-Identifier: Apache-2.0
// The shape of the sum over ranks, by enumeration: every node of every tree up to 33 positions, every set of hosts that
// matters.
#include "core/sum_tree.hpp"

#include "support/check.hpp"
#include "support/sum_oracle.hpp"

constexpr int64_t kMost = 33;

/// All nodes of the tree over n positions, by plain recursion.
void nodes_under(int64_t lo, int64_t hi, std::vector<SumNode>& all) {
  all.push_back({lo, hi});
  if (hi - lo == 1) return;
  const auto mid = lo + static_cast<int64_t>(oracle_left(static_cast<size_t>(hi - lo)));
  nodes_under(lo, mid, all);
  nodes_under(mid, hi, all);
}

std::vector<SumNode> nodes_of(int64_t n) {
  std::vector<SumNode> all;
  nodes_under(0, n, all);
  return all;
}

ddp_case(the_halves_meet_at_the_largest_power_of_two_below_the_width) {
  for (int64_t lo : {0, 8, 1000})
    for (int64_t width = 2; width <= 1030; ++width) {
      const int64_t left = sum_mid(lo, lo + width) - lo;
      expect((left & (left - 1)) == 0 && left < width && 2 * left >= width, std::to_string(width));
    }
}

ddp_case(a_tree_is_drawn_as_the_guide_draws_it) {
  const auto drawn = [](int64_t n) {
    return tree_sum(
        0, n, [](int64_t leaf) { return std::to_string(leaf); },
        [](const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; });
  };
  expect(drawn(1) == "0" && drawn(3) == "((0+1)+2)", "of 1 and of 3");
  expect(drawn(6) == "(((0+1)+(2+3))+(4+5))", drawn(6));
  expect(drawn(7) == "(((0+1)+(2+3))+((4+5)+6))", drawn(7));
  for (int64_t n = 1; n <= kMost; ++n) {
    const std::string naive = oracle_tree(
        0, static_cast<size_t>(n), [](size_t leaf) { return std::to_string(leaf); },
        [](const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; });
    expect(drawn(n) == naive, naive);
  }
}

ddp_case(every_aligned_block_is_a_node) {
  for (int64_t n = 1; n <= kMost; ++n) {
    const std::vector<SumNode> all = nodes_of(n);
    for (int64_t block = 1; block < 2 * n; block *= 2)
      for (int64_t lo = 0; lo < n; lo += block) {
        const SumNode node{lo, std::min(lo + block, n)};
        expect(std::find(all.begin(), all.end(), node) != all.end(),
               std::to_string(lo) + " + " + std::to_string(block) + " of " + std::to_string(n));
      }
  }
}

/// They cover the set, no more, and none is in a larger node that would.
void expect_maximal(int64_t n, const std::vector<int64_t>& positions) {
  const std::set<int64_t> set(positions.begin(), positions.end());
  const auto inside = [&](const SumNode& node) {
    for (int64_t at = node.lo; at < node.hi; ++at)
      if (!set.contains(at)) return false;
    return true;
  };
  const std::vector<SumNode> found = maximal_subtrees(n, positions);
  std::vector<SumNode> wanted;
  for (const SumNode& node : nodes_of(n)) {  // parents come first
    const bool covered =
        std::any_of(wanted.begin(), wanted.end(), [&](const SumNode& w) { return w.lo <= node.lo && node.hi <= w.hi; });
    if (inside(node) && !covered) wanted.push_back(node);
  }
  expect(found == wanted, std::to_string(n) + " positions, " + std::to_string(positions.size()) + " of them mine");
}

ddp_case(maximal_subtrees_are_the_largest_nodes_within_a_set) {
  std::mt19937_64 random(5);
  for (int64_t n = 1; n <= kMost; ++n) {
    for (int64_t from = 0; from < n; ++from)  // hosts of neighbours
      for (int64_t to = from; to <= n; ++to) {
        std::vector<int64_t> positions;
        for (int64_t at = to; at-- > from;) positions.push_back(at);
        expect_maximal(n, positions);
      }
    for (int64_t hosts = 2; hosts <= 4; ++hosts)  // round robin
      for (int64_t host = 0; host < hosts; ++host) {
        std::vector<int64_t> positions;
        for (int64_t at = host; at < n; at += hosts) positions.push_back(at);
        expect_maximal(n, positions);
      }
    for (int turn = 0; turn < 50; ++turn) {
      std::vector<int64_t> positions;
      for (int64_t at = 0; at < n; ++at)
        if (random() % 4 != 0) positions.push_back(at);
      expect_maximal(n, positions);
    }
  }
  expect(maximal_subtrees({}).empty(), "no positions");
}

ddp_case(by_rank_is_the_identity) {
  for (int32_t n = 1; n <= kMost; ++n) {
    const LeafMap map = LeafMap::by_rank(n);
    expect(map.ranks() == n && map.total() == n, "as many positions as ranks");
    for (int32_t rank = 0; rank < n; ++rank)
      expect(map.position_of(rank) == rank && map.rank_at(rank) == rank, "the identity");
  }
}

/// Every host is one node, whatever the number of its ranks and wherever they are.
ddp_case(by_host_makes_each_host_one_node) {
  std::mt19937_64 random(6);
  for (int32_t n = 1; n <= kMost; ++n)
    for (int turn = 0; turn < 40; ++turn) {
      const int32_t hosts = static_cast<int32_t>(random() % static_cast<uint64_t>(n)) + 1;
      std::vector<int32_t> host_of_rank, on_host(static_cast<size_t>(hosts));
      for (int32_t rank = 0; rank < n; ++rank) {
        host_of_rank.push_back(rank < hosts ? rank : static_cast<int32_t>(random() % static_cast<uint64_t>(hosts)));
        ++on_host[static_cast<size_t>(host_of_rank.back())];
      }
      int64_t block = 1;
      while (block < *std::max_element(on_host.begin(), on_host.end())) block *= 2;
      const LeafMap map = LeafMap::by_host(host_of_rank);
      std::vector<int64_t> next(static_cast<size_t>(hosts));
      std::vector<std::vector<int32_t>> ranks_of(static_cast<size_t>(hosts));
      int64_t holes = map.total();
      for (int32_t rank = 0; rank < n; ++rank) {
        const auto host = static_cast<size_t>(host_of_rank[static_cast<size_t>(rank)]);
        expect(map.position_of(rank) == static_cast<int64_t>(host) * block + next[host]++,
               "the host's block, in rank order");
        expect(map.rank_at(map.position_of(rank)) == rank, "and back");
        ranks_of[host].push_back(rank);
        --holes;
      }
      for (int64_t at = 0; at < map.total(); ++at) holes -= map.rank_at(at) == LeafMap::kHole ? 1 : 0;
      expect(holes == 0, "what is no rank is a hole");
      for (const std::vector<int32_t>& ranks : ranks_of) expect(map.subtrees_of(ranks).size() == 1, "one node a host");
    }
}

/// Three ranks on each of two hosts: ((0+1)+2) + ((4+5)+6), where position 3 is empty.
ddp_case(two_hosts_of_three) {
  const LeafMap map = LeafMap::by_host({0, 0, 0, 1, 1, 1});
  expect(map.total() == 7 && map.position_of(3) == 4 && map.rank_at(3) == LeafMap::kHole, "the second host begins at 4");
  expect(map.subtrees_of({0, 1, 2}) == std::vector<SumNode>{{0, 4}} &&
             map.subtrees_of({3, 4, 5}) == std::vector<SumNode>{{4, 7}},
         "one node each");
  expect(LeafMap::by_rank(6).subtrees_of({0, 1, 2}) == std::vector<SumNode>({{0, 2}, {2, 3}}), "two nodes by rank");
}

/// "-" is a hole, which no rank has.
std::string joined(const std::string& left, const std::string& right) {
  if (left == "-" || right == "-") return left == "-" ? right : left;
  return "(" + left + "+" + right + ")";
}

/// The sum over ranks that hold nodes is the sum over all leaves, drawn the same way.
ddp_case(nodes_in_the_place_of_leaves_give_the_tree_over_leaves) {
  const auto leaf = [](int64_t at) { return std::to_string(at); };
  for (int64_t leaves = 1; leaves <= kMost; ++leaves) {
    const std::string wanted = tree_sum(0, leaves, leaf, joined);
    for (int64_t ranks = 1; ranks <= leaves; ++ranks) {
      const std::vector<SumNode> nodes = cut_tree(leaves, ranks);
      const std::vector<SumNode> all = nodes_of(leaves);
      expect(static_cast<int64_t>(nodes.size()) == ranks && nodes.front().lo == 0 && nodes.back().hi == leaves,
             "all leaves");
      int64_t widest = 0, at = 0;
      for (const SumNode& node : nodes) {
        expect(node.lo == at && std::find(all.begin(), all.end(), node) != all.end(), "neighbouring nodes of the tree");
        at = node.hi;
        widest = std::max(widest, node.hi - node.lo);
      }
      if (ranks * 2 > leaves) expect(widest <= 2, "the widest are split first");
      const LeafMap map = LeafMap::of_nodes(leaves, static_cast<int32_t>(ranks));
      const auto position = [&](int64_t where) -> std::string {
        const int32_t rank = map.rank_at(where);
        if (rank == LeafMap::kHole) return "-";
        const SumNode& node = nodes[static_cast<size_t>(rank)];
        return tree_sum(node.lo, node.hi, leaf, joined);
      };
      const std::string drawn = tree_sum(0, map.total(), position, joined);
      expect(drawn == wanted, drawn + " with " + std::to_string(ranks) + " ranks, not " + wanted);
    }
    expect(LeafMap::of_nodes(leaves, static_cast<int32_t>(leaves)).total() == leaves, "a leaf each");
  }
  expect(LeafMap::of_nodes(1024, 2).total() == 2 && LeafMap::of_nodes(8, 3).total() == 3, "no more positions than needed");
}
