// SPDX-License-Identifier: Apache-2.0
// The ranks of a group of ddp_group_split, and their order.
#include "group/split.hpp"

#include "support/check.hpp"

using Ranks = std::vector<int32_t>;

ddp_case(halves_keep_the_order_of_the_parent) {
  const std::vector<group::SplitWish> wishes = {{7, 0}, {7, 0}, {2, 0}, {2, 0}, {7, 0}};
  expect(group::split_members(wishes, 0) == Ranks{0, 1, 4}, "color 7");
  expect(group::split_members(wishes, 4) == Ranks{0, 1, 4}, "color 7, of its last rank");
  expect(group::split_members(wishes, 3) == Ranks{2, 3}, "color 2");
}

ddp_case(keys_come_before_ranks) {
  const std::vector<group::SplitWish> wishes = {{0, 3}, {0, -5}, {0, 3}, {0, 2'147'483'647}, {0, -2'147'483'647 - 1}};
  expect(group::split_members(wishes, 2) == Ranks{4, 1, 0, 2, 3}, "by key, then by rank");
}

ddp_case(no_color_is_no_group) {
  const std::vector<group::SplitWish> wishes = {{-1, 0}, {0, 0}, {-1, 0}};
  expect(group::split_members(wishes, 0).empty(), "no color");
  expect(group::split_members(wishes, 1) == Ranks{1}, "alone");
}
