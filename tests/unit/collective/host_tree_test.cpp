// SPDX-License-Identifier: Apache-2.0
// Who adds what for sums between hosts, and when that sends less than single terms do.
#include "collective/nccl/host_tree.hpp"

#include <numeric>

#include "support/check.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;
using nccl::HostTree;
using nccl::SumLayout;

SumLayout placed(const std::vector<int32_t>& host_of, bool by_host = false) {
  std::vector<std::vector<int32_t>> hosts;
  for (size_t rank = 0; rank < host_of.size(); ++rank) {
    hosts.resize(std::max(hosts.size(), static_cast<size_t>(host_of[rank]) + 1));
    hosts[static_cast<size_t>(host_of[rank])].push_back(static_cast<int32_t>(rank));
  }
  const auto ranks = static_cast<int32_t>(host_of.size());
  return {by_host ? LeafMap::by_host(host_of) : LeafMap::by_rank(ranks), std::move(hosts)};
}

const std::vector<std::vector<int32_t>> kPlacements = {
    {0, 0, 1, 1}, {0, 0, 0, 1, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 2, 2, 2}, {0, 0, 0, 0, 0, 0, 1, 1}};

void every_slice_has_one_adder_on_each_other_host(void**) {
  for (const auto& host_of : kPlacements) {
    const HostTree tree(placed(host_of), 0);
    const auto ranks = static_cast<int32_t>(host_of.size());
    for (int32_t owner = 0; owner < ranks; ++owner)
      for (int32_t host = 0; host < tree.host_count(); ++host) {
        int64_t adders = 0;
        for (const int32_t rank : tree.ranks_of(host))
          for (const int32_t added : tree.added_by(rank)) adders += added == owner ? 1 : 0;
        expect_equal(adders, int64_t{tree.host_of(owner) == host ? 0 : 1}, "adders of a slice");
        if (adders == 1) {
          const int32_t adder = tree.adder_of(host, owner);
          expect_equal(tree.host_of(adder), host, "the adder's host");
          const std::vector<int32_t>& added = tree.added_by(adder);
          expect(std::find(added.begin(), added.end(), owner) != added.end(), "it adds the slice");
        }
      }
  }
}

void work_is_shared_out_evenly(void**) {
  for (const auto& host_of : kPlacements) {
    const HostTree tree(placed(host_of), 0);
    for (int32_t host = 0; host < tree.host_count(); ++host) {
      size_t most = 0, least = host_of.size();
      for (const int32_t rank : tree.ranks_of(host)) {
        most = std::max(most, tree.added_by(rank).size());
        least = std::min(least, tree.added_by(rank).size());
      }
      expect(most - least <= 1, "slices of the ranks of a host");
    }
  }
}

void ranks_are_in_order_host_by_host(void**) {
  const HostTree tree(placed({0, 1, 0, 1, 0, 1}), 3);
  expect_equal(tree.host(), 1, "host of rank 3");
  std::vector<int32_t> order;
  for (int32_t rank = 0; rank < 6; ++rank) order.push_back(tree.order_of(rank));
  expect(order == std::vector<int32_t>({0, 3, 1, 4, 2, 5}), "places");
}

/// By hand: bytes of an element of each slice that a host sends, as nodes and as terms.
void it_saves_where_nodes_are_smaller_than_terms(void**) {
  const auto saves = [](const std::vector<int32_t>& host_of, ddp_dtype dtype, bool by_host = false, ddp_dtype wire = {}) {
    cpu::ReduceRule rule{dtype, DDP_AVERAGE, static_cast<int32_t>(host_of.size())};
    rule.wire = wire;
    return HostTree(placed(host_of, by_host), 0).saves(rule);
  };
  expect(saves({0, 0, 1, 1}, DDP_F32), "4 and 8");
  expect(saves({0, 0, 1, 1}, DDP_F64), "8 and 16");
  expect(!saves({0, 0, 1, 1}, DDP_BF16), "4 and 4");
  expect(saves({0, 0, 1, 1}, DDP_F32, false, DDP_BF16), "2 and 4: sums have the wire's type");
  expect(saves({0, 0, 0, 0, 1, 1, 1, 1}, DDP_F16), "4 and 8");
  expect(saves({0, 0, 0, 1, 1, 1, 1, 1}, DDP_F32), "8 and 20");
  expect(!saves({0, 1, 0, 1, 0, 1}, DDP_F32), "12 and 12");
  expect(saves({0, 1, 0, 1, 0, 1}, DDP_F32, true), "4 and 12");
  expect(!saves({0, 0, 0, 1}, DDP_F32), "a host of one rank");
  expect(!HostTree(SumLayout(LeafMap::by_rank(4)), 0).saves(cpu::ReduceRule{}), "one host");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(every_slice_has_one_adder_on_each_other_host),
      ddp_test(work_is_shared_out_evenly),
      ddp_test(ranks_are_in_order_host_by_host),
      ddp_test(it_saves_where_nodes_are_smaller_than_terms),
  };
  return cmocka_run_group_tests_name("host_tree", tests, nullptr, nullptr);
}
