// SPDX-License-Identifier: Apache-2.0
// Ownership as a value: who owns what of a list of pieces, numbers by hand.
#include "core/ownership.hpp"

#include "support/check.hpp"

void expect_parts(OwnedParts parts, const std::vector<OwnedSpan>& wanted) {
  expect_equal(parts.size(), wanted.size(), "parts");
  for (size_t i = 0; i < wanted.size(); ++i) {
    expect_equal(parts[i].piece, wanted[i].piece, "piece");
    expect_equal(parts[i].first, wanted[i].first, "first");
    expect_equal(parts[i].count, wanted[i].count, "count");
  }
}

ddp_case(a_divided_list_has_one_owner_for_each_element) {
  const Ownership ownership = Ownership::divided({{{0, 0, 10}, {2, 0, 5}}, {{2, 5, 3}, {3, 0, 1}}});
  expect_equal(ownership.ranks(), 2, "ranks");
  expect_parts(ownership.parts(0, 0), {{0, 0, 10}});
  expect_parts(ownership.parts(1, 0), {});
  expect_parts(ownership.parts(0, 1), {});
  expect_parts(ownership.parts(0, 2), {{2, 0, 5}});
  expect_parts(ownership.parts(1, 2), {{2, 5, 3}});
  expect_parts(ownership.parts(1, 3), {{3, 0, 1}});
  expect_parts(ownership.parts(1, 4), {});
  expect_equal(ownership.count(0), int64_t{15}, "elements of rank 0");
  expect_equal(ownership.most(), int64_t{15}, "most");
}

ddp_case(all_own_everything) {
  const Ownership ownership = Ownership::of_all({4, 0, 6}, 2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    expect_parts(ownership.parts(rank, 0), {{0, 0, 4}});
    expect_parts(ownership.parts(rank, 1), {});
    expect_parts(ownership.parts(rank, 2), {{2, 0, 6}});
    expect_equal(ownership.slice(rank).size(), size_t{2}, "no empty spans");
  }
}

/// A rank may own several parts of a parameter; its state for them is contiguous.
ddp_case(parts_of_a_parameter_lie_one_behind_the_other) {
  const Ownership ownership = Ownership::divided({{{0, 0, 4}, {0, 10, 3}, {0, 20, 2}, {1, 0, 1}}, {{0, 4, 6}, {0, 13, 7}}});
  expect_parts(ownership.parts(0, 0), {{0, 0, 4}, {0, 10, 3}, {0, 20, 2}});
  expect_parts(ownership.parts(1, 0), {{0, 4, 6}, {0, 13, 7}});
  expect_equal(count_of(ownership.parts(0, 0)), int64_t{9}, "elements");
  int64_t wanted = 0;
  for (const int64_t element : {0, 1, 2, 3, 10, 11, 12, 20, 21})
    expect_equal(place_of(ownership.parts(0, 0), element), wanted++, "place");
}
