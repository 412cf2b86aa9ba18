// SPDX-License-Identifier: Apache-2.0
#include "hosts/layout.hpp"

#include <algorithm>
#include <map>

#include "exchange/transport.hpp"

namespace ddp::hierarchy {

std::vector<int32_t> Layout::rail_ranks() const {
  std::vector<int32_t> ranks;
  for (const std::vector<int32_t>& members : hosts) ranks.push_back(members[static_cast<size_t>(local)]);
  return ranks;
}

bool Layout::shares() const noexcept {
  return std::any_of(hosts.begin(), hosts.end(), [](const auto& members) { return members.size() > 1; });
}

// A host sends its nodes of the others' parts, and the sum of its own part to all others; it owns one part of `hosts`.
double Layout::traffic() const {
  size_t most = 1;
  for (const std::vector<int32_t>& members : hosts) most = std::max(most, map.subtrees_of(members).size());
  return (static_cast<double>(most) + 1) / 2;
}

Layout lay_out(const std::vector<std::string>& host_ids, int32_t rank, const ddp_group_options& options) {
  Layout layout;
  std::vector<int32_t> host_of;
  std::map<std::string, size_t> known;
  for (size_t r = 0; r < host_ids.size(); ++r) {
    const std::string id = host_ids[r].empty() ? " alone " + std::to_string(r) : host_ids[r];
    const size_t host = known.emplace(id, layout.hosts.size()).first->second;
    if (host == layout.hosts.size()) layout.hosts.emplace_back();
    if (static_cast<int32_t>(r) == rank) {
      layout.host = static_cast<int32_t>(host);
      layout.local = static_cast<int32_t>(layout.hosts[host].size());
    }
    layout.hosts[host].push_back(static_cast<int32_t>(r));
    host_of.push_back(static_cast<int32_t>(host));
  }
  const auto smaller = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  layout.rails = static_cast<int32_t>(std::min_element(layout.hosts.begin(), layout.hosts.end(), smaller)->size());
  layout.map = options.sum_order == DDP_SUM_ORDER_BY_HOST
                   ? LeafMap::by_host(host_of)
                   : collective::leaves_by_rank(options, static_cast<int32_t>(host_of.size()));
  return layout;
}

Layout lay_out(const bootstrap::Control& control, const ddp_group_options& options) {
  std::vector<std::string> ids;
  ids.reserve(static_cast<size_t>(control.size()));
  for (int32_t rank = 0; rank < control.size(); ++rank) ids.push_back(control.member(rank).boot_id);
  return lay_out(ids, control.rank(), options);
}

}  // namespace ddp::hierarchy
