// SPDX-License-Identifier: Apache-2.0
#include "core/closest.hpp"

#include "support/check.hpp"

constexpr std::array<std::string_view, 4> kKnown{"ranks", "report", "hosts", "bind"};

ddp_case(one_or_two_errors_are_understood) {
  for (const std::string_view typed : {"rank", "rankss", "ransk", "rnaks", "rabks", "rnks", "Ranks"})
    expect_equal(closest(typed, kKnown), std::string_view("ranks"), "of ranks");
  expect_equal(closest("repot", kKnown), std::string_view("report"), "of report");
  expect_equal(closest("bidn", kKnown), std::string_view("bind"), "of bind");
}

ddp_case(what_is_further_away_is_not_meant) {
  for (const std::string_view typed : {"", "r", "rn", "binary", "portrait", "show", "randoms"})
    expect_equal(closest(typed, kKnown), std::string_view(""), "nothing");
  expect_equal(closest("ranks", {}), std::string_view(""), "nothing is known");
}

ddp_case(the_nearest_is_meant) {
  constexpr std::array<std::string_view, 2> kNear{"DDP_TOKEN_FILE", "DDP_JOIN_FILE"};
  expect_equal(closest("DDP_JOINFILE", kNear), std::string_view("DDP_JOIN_FILE"), "one error");
}
