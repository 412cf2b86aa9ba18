// SPDX-License-Identifier: Apache-2.0
// The ranks that share a host, the rails that run, and the cost of a placement.
#include "hosts/host.hpp"
#include "support/check.hpp"

using hierarchy::lay_out;
using Ranks = std::vector<int32_t>;

ddp_case(hosts_are_ordered_by_their_lowest_rank) {
  const auto layout = lay_out({"z", "z", "a", "a", "a"}, 3);
  expect(layout.hosts == std::vector<Ranks>({{0, 1}, {2, 3, 4}}), "hosts");
  expect_equal(layout.host, 1, "host of rank 3");
  expect_equal(layout.local, 1, "index of rank 3");
  expect(layout.local_ranks() == Ranks({2, 3, 4}), "its host's ranks");
}

ddp_case(there_are_as_many_rails_as_the_smallest_host_has_ranks) {
  for (int32_t rank = 0; rank < 6; ++rank) {
    const auto layout = lay_out({"a", "a", "a", "b", "b", "c"}, rank);
    expect_equal(layout.rails, 1, "rails");
    expect_equal(layout.owns_rail(), rank == 0 || rank == 3 || rank == 5, "rank " + std::to_string(rank) + " owns a rail");
  }
  const auto layout = lay_out({"a", "a", "a", "b", "b"}, 4);
  expect_equal(layout.rails, 2, "rails");
  expect(layout.rail_ranks() == Ranks({1, 4}), "the second rail");
}

ddp_case(one_rank_on_each_host_shares_nothing) {
  expect(!lay_out({"a", "b", "c"}, 0).shares(), "three hosts of one");
  expect(lay_out({"a", "b", "b"}, 0).shares(), "a host of two");
}

ddp_case(a_host_that_is_not_known_is_a_host_of_its_own) { expect(!lay_out({"", "", ""}, 0).shares(), "empty ids"); }

std::vector<std::string> hosts_of(const std::string& placement) {
  std::vector<std::string> ids;
  for (const char host : placement) ids.push_back(std::string(1, host));
  return ids;
}

std::string blocks(int hosts, int ranks) {
  std::string placement;
  for (int host = 0; host < hosts; ++host)
    placement += std::string(static_cast<size_t>(ranks), static_cast<char>('a' + host));
  return placement;
}

// The table of the README.
ddp_case(the_busiest_host_sends_what_the_table_says) {
  const auto traffic = [](const std::string& placement, ddp_sum_order order = DDP_SUM_ORDER_BY_RANK) {
    ddp_group_options options{.sum_order = order};
    return lay_out(hosts_of(placement), 0, options).traffic();
  };
  std::string round_robin;
  for (int rank = 0; rank < 32; ++rank) round_robin += static_cast<char>('a' + rank % 4);
  expect(traffic(blocks(1, 8)) == 1.0 && traffic(blocks(2, 4)) == 1.0 && traffic(blocks(4, 2)) == 1.0 &&
             traffic(blocks(8, 1)) == 1.0,
         "powers of two");
  expect(traffic("aaabbbbb") == 1.5 && traffic(blocks(2, 3)) == 1.5 && traffic(blocks(4, 6)) == 1.5 &&
             traffic(blocks(3, 12)) == 1.5,
         "1.5");
  expect(traffic(blocks(2, 5)) == 2.0 && traffic(blocks(2, 7)) == 2.0, "2");
  expect_equal(traffic(round_robin), 4.5, "round robin");
  for (const std::string& placement : {blocks(2, 3), blocks(4, 6), round_robin, std::string("aaabbbbb")})
    expect_equal(traffic(placement, DDP_SUM_ORDER_BY_HOST), 1.0, placement + " by host");
}
