// SPDX-License-Identifier: Apache-2.0
// For how long members take turns after a loss.
#include "socket/collectives.hpp"
#include "support/check.hpp"

using socket::Congestion;
using socket::Order;

int64_t turns_until_the_next_try(Congestion& congestion) {
  int64_t turns = 0;
  while (congestion.next() == Order::kByMember) ++turns;
  return turns;
}

ddp_case(a_few_packets_that_overtake_are_no_loss) {
  const int64_t bytes = int64_t{1448} * 1024 * 10;
  expect(!Congestion::is_loss(10, bytes) && Congestion::is_loss(11, bytes), "one in a thousand");
  expect(!Congestion::is_loss(0, 0), "nothing was received");
}

ddp_case(nobody_takes_turns_while_nothing_is_lost) {
  Congestion congestion;
  for (int i = 0; i < 100; ++i) {
    expect(congestion.next() == Order::kBySegment, "all at a time");
    expect_equal(congestion.learn(false), int64_t{0}, "none");
  }
}

ddp_case(each_try_that_loses_again_is_followed_by_twice_as_many_turns) {
  Congestion congestion;
  for (int64_t wanted = Congestion::kFewest; wanted <= 4 * Congestion::kMost; wanted *= 2) {
    expect_equal(congestion.learn(true), std::min(wanted, Congestion::kMost), "what it says");
    expect_equal(turns_until_the_next_try(congestion), std::min(wanted, Congestion::kMost), "turns");
  }
}

ddp_case(what_is_lost_in_turns_makes_them_no_longer) {
  Congestion congestion;
  static_cast<void>(congestion.learn(true));
  for (int64_t i = 0; i < Congestion::kFewest; ++i) {
    static_cast<void>(congestion.learn(true));
    expect(congestion.next() == Order::kByMember, "in turns");
  }
  expect(congestion.next() == Order::kBySegment, "then a try");
}
