// SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/host_tree.hpp"

#include <algorithm>

#include "core/dtype.hpp"

namespace ddp::nccl {

HostTree::HostTree(const SumLayout& layout, int32_t rank) : hosts_(layout.hosts) {
  const int32_t size = layout.leaves.ranks();
  if (hosts_.empty()) {
    hosts_.emplace_back();
    for (int32_t r = 0; r < size; ++r) hosts_.back().push_back(r);
  }
  host_of_.resize(static_cast<size_t>(size));
  order_.resize(static_cast<size_t>(size));
  added_.resize(static_cast<size_t>(size));
  int32_t next = 0;
  for (int32_t host = 0; host < host_count(); ++host) {
    nodes_.push_back(layout.leaves.subtrees_of(ranks_of(host)));
    for (const int32_t r : ranks_of(host)) {
      host_of_[static_cast<size_t>(r)] = host;
      order_[static_cast<size_t>(r)] = next++;
    }
  }
  host_ = host_of(rank);
  for (int32_t host = 0; host < host_count(); ++host) {
    std::vector<int32_t> owners;
    for (int32_t r = 0; r < size; ++r)
      if (host_of(r) != host) owners.push_back(r);
    const std::vector<int32_t>& adders = ranks_of(host);
    for (size_t k = 0; k < owners.size(); ++k)
      added_[static_cast<size_t>(adders[k * adders.size() / owners.size()])].push_back(owners[k]);
  }
}

int32_t HostTree::adder_of(int32_t host, int32_t owner) const noexcept {
  for (const int32_t rank : ranks_of(host))
    if (std::binary_search(added_by(rank).begin(), added_by(rank).end(), owner)) return rank;
  return -1;
}

int64_t HostTree::bytes_of(int32_t host, const cpu::ReduceRule& rule) const noexcept {
  int64_t bytes = 0;
  for (const SumNode& node : nodes_of(host))
    bytes += dtype_size(node.hi - node.lo == 1 ? rule.travel_dtype() : rule.carry_dtype());
  return bytes;
}

bool HostTree::saves(const cpu::ReduceRule& rule) const noexcept {
  int64_t alone = 0, together = 0;
  for (int32_t host = 0; host < host_count(); ++host) {
    const auto ranks = static_cast<int64_t>(ranks_of(host).size());
    if (ranks < 2) return false;
    alone = std::max(alone, ranks * dtype_size(rule.travel_dtype()));
    together = std::max(together, bytes_of(host, rule));
  }
  return host_count() > 1 && together < alone;
}

}  // namespace ddp::nccl
