// SPDX-License-Identifier: Apache-2.0
// Which rank keeps a copy of which rank's data, so that it outlives a host: the ranks of each host have theirs on the next
// host, shared out evenly over the ranks there, whatever the numbers of ranks. Values and pure functions; every rank finds
// the same. Tested by unit/exchange/keeping_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::collective {

/// Whose part a rank sends to the next host in a round, and whose it gets from the host before and keeps; -1: none.
struct KeepRound {
  int32_t sent = -1;
  int32_t received = -1;
};

/// Ranks of each host, ascending.
using RanksOfHosts = std::vector<std::vector<int32_t>>;

/// Where a rank is: its host, and which of the ranks there it is.
struct HostPlace {
  int32_t host = 0;
  int32_t local = 0;
};
[[nodiscard]] HostPlace place_of_rank(const RanksOfHosts& hosts, int32_t rank);

/// Ranks of a host reach each other's memory, and only its first `rails` ranks have a link, to those with the same place on
/// other hosts: they send for the others too. Two hosts or more.
[[nodiscard]] std::vector<KeepRound> keep_over_rails(const RanksOfHosts& hosts, HostPlace mine, int32_t rails);

/// Every rank sends what is its own, to keeper_of() it. Two hosts or more.
[[nodiscard]] std::vector<KeepRound> keep_from_rank_to_rank(const RanksOfHosts& hosts, HostPlace mine);
[[nodiscard]] int32_t keeper_of(const RanksOfHosts& hosts, HostPlace mine);

}  // namespace ddp::collective
