// Who shares a host, which rails run, and what stands in the way of a sum in rank order.
#include "comm/hierarchy/layout.hpp"

#include "support/check.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;
using hierarchy::lay_out;
using Ranks = std::vector<int32_t>;

void hosts_are_ordered_by_their_lowest_rank(void**) {
  const auto layout = lay_out({"z", "z", "a", "a", "a"}, 3);
  expect(layout.hosts == std::vector<Ranks>({{0, 1}, {2, 3, 4}}), "hosts");
  expect_equal(layout.host, 1, "host of rank 3");
  expect_equal(layout.local, 1, "index of rank 3");
  expect(layout.local_ranks() == Ranks({2, 3, 4}), "its host's ranks");
}

void there_are_as_many_rails_as_the_smallest_host_has_ranks(void**) {
  for (int32_t rank = 0; rank < 6; ++rank) {
    const auto layout = lay_out({"a", "a", "a", "b", "b", "c"}, rank);
    expect_equal(layout.rails, 1, "rails");
    expect_equal(layout.owns_rail(), rank == 0 || rank == 3 || rank == 5, "rank " + std::to_string(rank) + " owns a rail");
  }
  const auto layout = lay_out({"a", "a", "a", "b", "b"}, 4);
  expect_equal(layout.rails, 2, "rails");
  expect(layout.rail_ranks() == Ranks({1, 4}), "the second rail");
}

void one_rank_on_each_host_shares_nothing(void**) {
  expect(!lay_out({"a", "b", "c"}, 0).shares(), "three hosts of one");
  expect(lay_out({"a", "b", "b"}, 0).shares(), "a host of two");
}

void a_host_that_is_not_known_is_a_host_of_its_own(void**) { expect(!lay_out({"", "", ""}, 0).shares(), "empty ids"); }

void ranks_that_are_not_placed_host_by_host_are_named(void**) {
  expect_equal(lay_out({"a", "a", "b", "b"}, 0).interleaved(), std::string(), "host by host");
  expect_equal(lay_out({"a", "b", "a", "b"}, 0).interleaved(), std::string("ranks 0 and 2 are on one host, but rank 1 is on another"),
               "round robin");
  expect_equal(lay_out({"a", "b", "b", "c", "c", "b"}, 0).interleaved(),
               std::string("ranks 2 and 5 are on one host, but rank 3 is on another"), "one astray");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(hosts_are_ordered_by_their_lowest_rank),
      ddp_test(there_are_as_many_rails_as_the_smallest_host_has_ranks),
      ddp_test(one_rank_on_each_host_shares_nothing),
      ddp_test(a_host_that_is_not_known_is_a_host_of_its_own),
      ddp_test(ranks_that_are_not_placed_host_by_host_are_named),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
