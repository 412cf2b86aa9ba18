// SPDX-License-Identifier: Apache-2.0
// Every rank's part is kept on another host, once, by the receiver of that round, for any numbers of ranks.
#include "exchange/keeping.hpp"

#include "support/check.hpp"

using namespace ddp::collective;

/// Ranks dealt out at random.
RanksOfHosts random_hosts(std::mt19937& random, int32_t ranks, int32_t hosts) {
  RanksOfHosts made(static_cast<size_t>(hosts));
  for (int32_t rank = 0; rank < ranks; ++rank)
    made[rank < hosts ? static_cast<size_t>(rank) : random() % made.size()].push_back(rank);
  return made;
}

std::string describe(const RanksOfHosts& hosts) {
  std::string text;
  for (const auto& ranks : hosts) text += (text.empty() ? "" : "+") + std::to_string(ranks.size());
  return text;
}

struct Kept {
  int times = 0;
  int32_t keeper = -1;
  size_t round = 0;
};

/// By rank whose part it is. `rounds_of`: of each rank.
std::vector<Kept> keep(int32_t ranks, const std::vector<std::vector<KeepRound>>& rounds_of) {
  std::vector<Kept> kept(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const auto& rounds = rounds_of[static_cast<size_t>(rank)];
    expect_equal(rounds.size(), rounds_of[0].size(), "all ranks have as many rounds");
    for (size_t round = 0; round < rounds.size(); ++round)
      if (rounds[round].received >= 0) {
        Kept& part = kept[static_cast<size_t>(rounds[round].received)];
        part = {part.times + 1, rank, round};
      }
  }
  return kept;
}

void check(const RanksOfHosts& hosts, int32_t ranks, bool over_rails) {
  int32_t rails = ranks;
  for (const auto& each : hosts) rails = std::min(rails, static_cast<int32_t>(each.size()));
  std::vector<std::vector<KeepRound>> rounds_of;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const HostPlace place = place_of_rank(hosts, rank);
    rounds_of.push_back(over_rails ? keep_over_rails(hosts, place, rails) : keep_from_rank_to_rank(hosts, place));
  }
  const std::vector<Kept> kept = keep(ranks, rounds_of);
  std::vector<int> load(static_cast<size_t>(ranks)), sent(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const std::string what = describe(hosts) + (over_rails ? " over rails" : "") + ", part of rank " + std::to_string(rank);
    const Kept& part = kept[static_cast<size_t>(rank)];
    expect_equal(part.times, 1, what + " is kept once");
    const HostPlace own = place_of_rank(hosts, rank), there = place_of_rank(hosts, part.keeper);
    expect(own.host != there.host, what + " is on another host");
    ++load[static_cast<size_t>(part.keeper)];
    // The sender in that round, and its receiver.
    for (int32_t sender = 0; sender < ranks; ++sender) {
      if (rounds_of[static_cast<size_t>(sender)][part.round].sent != rank) continue;
      ++sent[static_cast<size_t>(rank)];
      const HostPlace from = place_of_rank(hosts, sender);
      expect_equal(from.host, own.host, what + " is sent from its host");
      if (over_rails) {
        expect(from.local < rails && from.local == there.local, what + " takes a rail");
      } else {
        expect_equal(sender, rank, what + " is sent by its rank");
        expect_equal(keeper_of(hosts, from), part.keeper, what + " goes to who waits for it");
      }
    }
    expect_equal(sent[static_cast<size_t>(rank)], 1, what + " is sent once");
  }
  for (const auto& each : hosts) {
    int most = 0, least = ranks;
    for (const int32_t rank : each) {
      if (over_rails && place_of_rank(hosts, rank).local >= rails) continue;
      most = std::max(most, load[static_cast<size_t>(rank)]);
      least = std::min(least, load[static_cast<size_t>(rank)]);
    }
    expect(most - least <= 1, describe(hosts) + ": ranks of a host keep as many");
  }
}

ddp_case(every_part_is_kept_once_on_another_host) {
  std::mt19937 random(7);
  for (int32_t hosts = 2; hosts <= 5; ++hosts)
    for (int32_t ranks = hosts; ranks <= 17; ++ranks)
      for (const bool over_rails : {false, true}) check(random_hosts(random, ranks, hosts), ranks, over_rails);
}

ddp_case(three_and_two) {
  const RanksOfHosts hosts{{0, 1, 2}, {3, 4}};
  const std::vector<KeepRound> first = keep_over_rails(hosts, {0, 0}, 2), third = keep_over_rails(hosts, {0, 2}, 2),
                               fourth = keep_over_rails(hosts, {1, 0}, 2);
  expect(first.size() == 2 && first[0].sent == 0 && first[1].sent == 2, "rank 0 sends for rank 2 too");
  expect(third[0].sent == -1 && third[1].sent == -1 && third[1].received == -1, "rank 2 has no rail");
  expect(fourth[0].received == 0 && fourth[1].received == 2 && fourth[1].sent == -1, "rank 3 keeps both");
}
