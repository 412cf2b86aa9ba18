// SPDX-License-Identifier: Apache-2.0
// What members add to a sum, and how many bytes that is.
#include "socket/shares.hpp"

#include "support/check.hpp"

ddp_case(one_rank_is_one_leaf) {
  const socket::Shares shares = socket::one_rank_each(3);
  expect(shares.members() == 3 && shares.leaves == 3 && shares.most_ranks() == 1, "three leaves");
  for (int32_t member = 0; member < 3; ++member)
    expect(shares.nodes_of(member) == std::vector<SumNode>{{member, member + 1}}, "its own position");
}

ddp_case(a_host_has_its_largest_subtrees) {
  const socket::Shares shares = socket::share_out(LeafMap::by_rank(8), {{0, 1, 2}, {3, 4, 5, 6, 7}});
  expect(shares.nodes_of(0) == std::vector<SumNode>{{0, 2}, {2, 3}}, "0 + 1, and 2");
  expect(shares.nodes_of(1) == std::vector<SumNode>{{3, 4}, {4, 8}}, "3, and 4 to 7");
  const socket::Shares by_host = socket::share_out(LeafMap::by_host({0, 0, 0, 1, 1, 1}), {{0, 1, 2}, {3, 4, 5}});
  expect(by_host.nodes_of(0).size() == 1 && by_host.positions[1] == std::vector<int64_t>{4, 5, 6},
         "a hole between the hosts");
}

// A leaf is sent as it is, another node in the type of the accumulator, everything in the wire type if there is one.
ddp_case(bytes_follow_from_the_nodes) {
  const socket::Shares shares = socket::share_out(LeafMap::by_rank(3), {{0, 1}, {2}});
  cpu::ReduceRule rule{DDP_BF16, DDP_SUM, 3};
  expect(shares.bytes_of(0, rule) == 4 && shares.bytes_of(1, rule) == 2 && shares.most_bytes(rule) == 4, "BF16");
  rule.dtype = DDP_F64;
  expect_equal(shares.most_bytes(rule), int64_t{8}, "F64");
  rule.wire = DDP_F16;
  expect_equal(shares.most_bytes(rule), int64_t{2}, "F64 in two bytes");
}
