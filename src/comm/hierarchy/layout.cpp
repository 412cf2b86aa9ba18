#include "comm/hierarchy/layout.hpp"

#include <algorithm>
#include <map>

namespace ddp::hierarchy {

std::vector<int32_t> Layout::rail_ranks() const {
  std::vector<int32_t> ranks;
  for (const std::vector<int32_t>& members : hosts) ranks.push_back(members[static_cast<size_t>(local)]);
  return ranks;
}

bool Layout::shares() const noexcept {
  return std::any_of(hosts.begin(), hosts.end(), [](const auto& members) { return members.size() > 1; });
}

std::string Layout::interleaved() const {
  for (const std::vector<int32_t>& members : hosts)
    for (size_t i = 1; i < members.size(); ++i)
      if (members[i] != members[i - 1] + 1)
        return "ranks " + std::to_string(members[i - 1]) + " and " + std::to_string(members[i]) + " are on one host, but rank " +
               std::to_string(members[i - 1] + 1) + " is on another";
  return "";
}

Layout lay_out(const std::vector<std::string>& host_ids, int32_t rank) {
  Layout layout;
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
  }
  const auto smaller = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  layout.rails = static_cast<int32_t>(std::min_element(layout.hosts.begin(), layout.hosts.end(), smaller)->size());
  return layout;
}

Layout lay_out(const Control& control) {
  std::vector<std::string> ids;
  for (int32_t rank = 0; rank < control.size(); ++rank) ids.push_back(control.member(rank).boot_id);
  return lay_out(ids, control.rank());
}

}  // namespace ddp::hierarchy
