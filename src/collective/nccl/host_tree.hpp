// SPDX-License-Identifier: Apache-2.0
// Sums of which the ranks of a host form their part before it crosses to other hosts: who adds what, and what crosses.
// Values and pure functions; the same on all ranks.
//
// Each rank owns a slice. The ranks of a host share out the slices of all other hosts' ranks: of such a slice the adder gets
// the terms of its host's ranks, adds the largest nodes of the tree that have leaves of this host alone
// (core/sum_tree.hpp), and sends them to the slice's owner.
// Tested by unit/collective/host_tree_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "core/sum_tree.hpp"
#include "device/cpu/reduce.hpp"

namespace ddp::nccl {

/// Which leaf of a sum each rank is, and who shares a host.
struct SumLayout {
  SumLayout(LeafMap map, std::vector<std::vector<int32_t>> ranks = {}) : leaves(std::move(map)), hosts(std::move(ranks)) {}

  LeafMap leaves;
  std::vector<std::vector<int32_t>> hosts;  // ascending ranks of each; none: one host
};

class HostTree {
 public:
  HostTree(const SumLayout& layout, int32_t rank);

  /// Does less cross between hosts than if every rank sent its terms to their owner, for each host that sends most? Not
  /// where a host has one rank, which has nothing to share.
  [[nodiscard]] bool saves(const cpu::ReduceRule& rule) const noexcept;

  [[nodiscard]] int32_t host() const noexcept { return host_; }
  [[nodiscard]] int32_t host_count() const noexcept { return static_cast<int32_t>(hosts_.size()); }
  [[nodiscard]] int32_t host_of(int32_t rank) const noexcept { return host_of_[static_cast<size_t>(rank)]; }
  [[nodiscard]] const std::vector<int32_t>& ranks_of(int32_t host) const noexcept {
    return hosts_[static_cast<size_t>(host)];
  }
  [[nodiscard]] const std::vector<SumNode>& nodes_of(int32_t host) const noexcept {
    return nodes_[static_cast<size_t>(host)];
  }
  /// The owners, on other hosts, whose slices this rank adds; ascending.
  [[nodiscard]] const std::vector<int32_t>& added_by(int32_t rank) const noexcept {
    return added_[static_cast<size_t>(rank)];
  }
  /// Who adds the slice of `owner` on a host that is not its own.
  [[nodiscard]] int32_t adder_of(int32_t host, int32_t owner) const noexcept;
  /// Ranks host by host: where a rank is in that order.
  [[nodiscard]] int32_t order_of(int32_t rank) const noexcept { return order_[static_cast<size_t>(rank)]; }

 private:
  [[nodiscard]] int64_t bytes_of(int32_t host, const cpu::ReduceRule& rule) const noexcept;

  std::vector<std::vector<int32_t>> hosts_;
  std::vector<std::vector<SumNode>> nodes_;  // by host
  std::vector<std::vector<int32_t>> added_;  // by rank
  std::vector<int32_t> host_of_;
  std::vector<int32_t> order_;
  int32_t host_ = 0;
};

}  // namespace ddp::nccl
