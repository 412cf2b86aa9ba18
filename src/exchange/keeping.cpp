// SPDX-License-Identifier: Apache-2.0
#include "exchange/keeping.hpp"

#include <algorithm>

namespace ddp::collective {
namespace {

int32_t size_of(const RanksOfHosts& hosts, size_t host) noexcept { return static_cast<int32_t>(hosts[host].size()); }

size_t next_host(const RanksOfHosts& hosts, int32_t host) noexcept { return (static_cast<size_t>(host) + 1) % hosts.size(); }
size_t host_before(const RanksOfHosts& hosts, int32_t host) noexcept {
  return (static_cast<size_t>(host) + hosts.size() - 1) % hosts.size();
}

/// The `local`-th rank of a host; -1 if it has fewer.
int32_t rank_at(const RanksOfHosts& hosts, size_t host, int32_t local) noexcept {
  return local < size_of(hosts, host) ? hosts[host][static_cast<size_t>(local)] : -1;
}

int32_t parts_of(int32_t ranks, int32_t keepers) noexcept { return (ranks + keepers - 1) / keepers; }

}  // namespace

HostPlace place_of_rank(const RanksOfHosts& hosts, int32_t rank) {
  HostPlace place;
  for (const std::vector<int32_t>& ranks : hosts) {
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    place.local = static_cast<int32_t>(found - ranks.begin());
    if (found != ranks.end()) break;
    ++place.host;
  }
  return place;
}

std::vector<KeepRound> keep_over_rails(const RanksOfHosts& hosts, HostPlace mine, int32_t rails) {
  int32_t most = 0;
  for (size_t host = 0; host < hosts.size(); ++host) most = std::max(most, parts_of(size_of(hosts, host), rails));
  std::vector<KeepRound> rounds(static_cast<size_t>(most));
  if (mine.local >= rails) return rounds;
  for (int32_t round = 0; round < most; ++round) {
    const int32_t local = mine.local + round * rails;
    rounds[static_cast<size_t>(round)] = {rank_at(hosts, static_cast<size_t>(mine.host), local),
                                          rank_at(hosts, host_before(hosts, mine.host), local)};
  }
  return rounds;
}

std::vector<KeepRound> keep_from_rank_to_rank(const RanksOfHosts& hosts, HostPlace mine) {
  int32_t most = 0;
  for (size_t host = 0; host < hosts.size(); ++host)
    most = std::max(most, parts_of(size_of(hosts, host), size_of(hosts, next_host(hosts, static_cast<int32_t>(host)))));
  std::vector<KeepRound> rounds(static_cast<size_t>(most));
  const auto own = static_cast<size_t>(mine.host);
  rounds[static_cast<size_t>(mine.local / size_of(hosts, next_host(hosts, mine.host)))].sent =
      rank_at(hosts, own, mine.local);
  for (int32_t round = 0; round < most; ++round)
    rounds[static_cast<size_t>(round)].received =
        rank_at(hosts, host_before(hosts, mine.host), mine.local + round * size_of(hosts, own));
  return rounds;
}

int32_t keeper_of(const RanksOfHosts& hosts, HostPlace mine) {
  const size_t next = next_host(hosts, mine.host);
  return rank_at(hosts, next, mine.local % size_of(hosts, next));
}

}  // namespace ddp::collective
