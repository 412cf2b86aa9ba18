// SPDX-License-Identifier: Apache-2.0
// A sum over the ranks' GPUs between hosts, with the bits of the CPU: each host adds its nodes of the tree before they cross
// (host_tree.hpp). Two exchanges, inside the hosts and between them, with kernels behind each.
//
//   inside    terms of the slices that a rank adds, and of its own, from all ranks of its host
//   add       the host's nodes of all these slices: one launch for each node
//   between   nodes to the owners of the slices. A single leaf crosses as it is
//   join      the owner's tree over the nodes of all hosts, divided and rounded
//
// Sums of 16 bits are F32 until they are joined. Cost: a rank sends (k - 1) / k of the bytes inside its host of k ranks; the
// host sends as many times its share of the others' slices as it has nodes. Nothing is allocated after it was made.
// Threads: as the transport.
// Tested by gpu_host/reproducible_hosts_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/nccl/communicator.hpp"
#include "collective/nccl/host_tree.hpp"
#include "device/gpu/device.hpp"

namespace ddp::nccl {

class NcclTransport;

/// What the sums of a group have in common: device memory with the ranks and nodes at the positions of the tree.
class HostMaps {
 public:
  /// On this stream; waits for it. Throws OUT_OF_MEMORY.
  HostMaps(const gpu::Device& device, const LeafMap& leaves, HostTree tree, int32_t rank, void* stream);

  [[nodiscard]] const HostTree& tree() const noexcept { return tree_; }
  /// Slices that this rank adds for other hosts.
  [[nodiscard]] int64_t added() const noexcept { return added_; }
  /// The numbers of nodes among them all: of this host, where there is one for each added slice and then the own one; and
  /// of another host's.
  [[nodiscard]] int64_t own_node(size_t node, int64_t slice = 0) const noexcept {
    return static_cast<int64_t>(node) * (added_ + 1) + slice;
  }
  [[nodiscard]] int64_t node_of(int32_t host, size_t node) const noexcept {
    return first_[static_cast<size_t>(host)] + static_cast<int64_t>(node);
  }
  [[nodiscard]] int64_t nodes() const noexcept { return nodes_; }
  /// Single ranks on other hosts.
  [[nodiscard]] int64_t other_leaves() const noexcept { return other_leaves_; }

  // Device memory, by position: a node's number at its first one; the order of ranks; ranks of this host, from a node on.
  [[nodiscard]] const int32_t* node_at() const noexcept { return at(0); }
  [[nodiscard]] const int32_t* order_at() const noexcept { return at(positions_); }
  [[nodiscard]] const int32_t* local_at(const SumNode& node) const noexcept { return at(2 * positions_ + node.lo); }
  [[nodiscard]] int32_t positions() const noexcept { return static_cast<int32_t>(positions_); }
  [[nodiscard]] int32_t rank_at(int64_t position) const noexcept { return leaves_.rank_at(position); }

 private:
  [[nodiscard]] const int32_t* at(int64_t position) const noexcept {
    return reinterpret_cast<const int32_t*>(memory_.data()) + position;
  }

  const HostTree tree_;
  const LeafMap leaves_;
  const int64_t positions_;
  const int64_t added_;
  int64_t nodes_ = 0;
  int64_t other_leaves_ = 0;
  std::vector<int64_t> first_;  // by host: the number of its first node; of the own one 0
  gpu::Array memory_;
};

class HostSum {
 public:
  struct Shape {
    cpu::ReduceRule rule;
    int64_t slice = 0;  // elements of a rank's slice, at most
    bool has_weights = false;
  };
  /// `memory`: bytes() of it, which nobody else uses between two sums' beginnings. `weights`: device memory of one for each
  /// rank, host by host; NULL: there are none.
  HostSum(NcclTransport& transport, const HostMaps& maps, const Shape& shape, std::byte* memory, double* weights);
  [[nodiscard]] static int64_t bytes(const HostMaps& maps, const Shape& shape) noexcept;

  /// Slices of `count` elements that begin `stride` apart; NULL: this rank sends what changes nothing, `neutral`.
  void reduce_scatter(const std::byte* data, int64_t stride, int64_t count, const std::byte* neutral, std::byte* out,
                      ddp_gpu_stop stop);

 private:
  /// Memory of one sum, for slices of `count` elements.
  struct Places;
  [[nodiscard]] static bool is_raw(const SumNode& node, const Shape& shape) noexcept;
  [[nodiscard]] static ddp_dtype carry(const Shape& shape) noexcept;
  void add_weights_of_all(int32_t rank);
  void meet_inside(const Places& at, const std::byte* data, int64_t stride, const std::byte* neutral);
  void add_nodes(const Places& at) const;
  void cross(const Places& at);
  void widen_leaves(const Places& at) const;
  void join(const Places& at, std::byte* out, ddp_gpu_stop stop) const;
  [[nodiscard]] ddp_gpu_tree tree_over(const std::byte* parts, int64_t stride, int64_t count, ddp_dtype from,
                                       ddp_dtype to) const noexcept;
  void launch(const ddp_gpu_tree& tree, ddp_gpu_stop stop) const;

  NcclTransport& transport_;
  const HostMaps& maps_;
  const Shape shape_;
  std::byte* const memory_;
  double* const weights_;
  std::vector<Communicator::Transfer> transfers_;
  std::vector<ddp_gpu_span> copies_;
};

}  // namespace ddp::nccl
