// SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/host_sum.hpp"

#include <algorithm>
#include <utility>

#include "collective/nccl/nccl_transport.hpp"
#include "collective/nccl/tree_sum.hpp"
#include "core/dtype.hpp"

namespace ddp::nccl {
namespace {

constexpr int64_t kApart = 256;  // bytes; places begin at multiples of it

int64_t rounded(int64_t bytes) noexcept { return (bytes + kApart - 1) / kApart * kApart; }

}  // namespace

HostMaps::HostMaps(const gpu::Device& device, const LeafMap& leaves, HostTree tree, int32_t rank, void* stream)
    : tree_(std::move(tree)),
      leaves_(leaves),
      positions_(leaves.total()),
      added_(static_cast<int64_t>(tree_.added_by(rank).size())),
      first_(static_cast<size_t>(tree_.host_count())) {
  std::vector<int32_t> maps(static_cast<size_t>(3 * positions_), -1);
  nodes_ = static_cast<int64_t>(tree_.nodes_of(tree_.host()).size()) * (added_ + 1);
  for (int32_t host = 0; host < tree_.host_count(); ++host) {
    const std::vector<SumNode>& nodes = tree_.nodes_of(host);
    const bool own = host == tree_.host();
    if (!own) first_[static_cast<size_t>(host)] = std::exchange(nodes_, nodes_ + std::ssize(nodes));
    for (size_t k = 0; k < nodes.size(); ++k) {
      maps[static_cast<size_t>(nodes[k].lo)] = static_cast<int32_t>(own ? own_node(k, added_) : node_of(host, k));
      if (!own && nodes[k].hi - nodes[k].lo == 1) ++other_leaves_;
    }
  }
  for (int64_t at = 0; at < positions_; ++at)
    if (const int32_t there = leaves.rank_at(at); there >= 0)
      maps[static_cast<size_t>(positions_ + at)] = tree_.order_of(there);
  const std::vector<int32_t>& here = tree_.ranks_of(tree_.host());
  for (size_t local = 0; local < here.size(); ++local)
    maps[static_cast<size_t>(2 * positions_ + leaves.position_of(here[local]))] = static_cast<int32_t>(local);
  const auto bytes = static_cast<int64_t>(maps.size() * sizeof(int32_t));
  memory_ = gpu::Array(device, bytes, "the order of a group's sums");
  device.copy(memory_.data(), maps.data(), bytes, stream);
  device.synchronize(stream);
}

struct HostSum::Places {
  int64_t count;
  ddp_dtype term, sum;  // what they are of
  std::byte* terms;     // of the ranks of this host: of each the slices that are added here
  std::byte* nodes;
  std::byte* leaves;  // of other hosts, that are still to be widened
  int64_t end;

  Places(const HostMaps& maps, const Shape& shape, int64_t slice, std::byte* memory)
      : count(slice), term(shape.rule.travel_dtype()), sum(carry(shape)), terms(memory) {
    const auto ranks = std::ssize(maps.tree().ranks_of(maps.tree().host()));
    const int64_t nodes_at = rounded(ranks * (maps.added() + 1) * count * dtype_size(term));
    const int64_t leaves_at = nodes_at + rounded(maps.nodes() * count * dtype_size(sum));
    nodes = memory + nodes_at;
    leaves = memory + leaves_at;
    end = leaves_at + (widens() ? maps.other_leaves() * count * dtype_size(term) : 0);
  }
  [[nodiscard]] bool widens() const noexcept { return term != sum; }
  [[nodiscard]] std::byte* node(int64_t number) const noexcept { return nodes + number * count * dtype_size(sum); }
  [[nodiscard]] std::byte* leaf(int64_t number) const noexcept { return leaves + number * count * dtype_size(term); }
  /// Of a rank of this host: the slice that is the n-th one of those added here.
  [[nodiscard]] std::byte* from(size_t local, int64_t slices, int64_t n) const noexcept {
    return terms + (static_cast<int64_t>(local) * slices + n) * count * dtype_size(term);
  }
};

HostSum::HostSum(NcclTransport& transport, const HostMaps& maps, const Shape& shape, std::byte* memory, double* weights)
    : transport_(transport), maps_(maps), shape_(shape), memory_(memory), weights_(weights) {
  const HostTree& tree = maps.tree();
  size_t most = static_cast<size_t>(2 * maps.nodes());
  for (const int32_t rank : tree.ranks_of(tree.host())) most += 2 * (tree.added_by(rank).size() + 1);
  transfers_.reserve(most + 2 * static_cast<size_t>(transport.size()));
  copies_.reserve(static_cast<size_t>(maps.added() + 1));
}

int64_t HostSum::bytes(const HostMaps& maps, const Shape& shape) noexcept {
  return Places(maps, shape, shape.slice, nullptr).end;
}

ddp_dtype HostSum::carry(const Shape& shape) noexcept { return shape.rule.carry_dtype(); }

/// Who adds it at the other end needs no other terms: it is sent as it is, unless it is to be multiplied and is no smaller
/// than what comes of that.
bool HostSum::is_raw(const SumNode& node, const Shape& shape) noexcept {
  return node.hi - node.lo == 1 && (carry(shape) != shape.rule.travel_dtype() || !shape.has_weights);
}

void HostSum::reduce_scatter(const std::byte* data, int64_t stride, int64_t count, const std::byte* neutral, std::byte* out,
                             ddp_gpu_stop stop) {
  const Places at(maps_, shape_, count, memory_);
  meet_inside(at, data, stride, neutral);
  add_nodes(at);
  cross(at);
  if (at.widens()) widen_leaves(at);
  join(at, out, stop);
}

void HostSum::add_weights_of_all(int32_t rank) {
  const HostTree& tree = maps_.tree();
  for (int32_t peer = 0; peer < transport_.size(); ++peer) {
    if (peer == rank) continue;
    transfers_.push_back({peer, true, weights_ + tree.order_of(rank), 1, DDP_F64});
    transfers_.push_back({peer, false, weights_ + tree.order_of(peer), 1, DDP_F64});
  }
}

void HostSum::meet_inside(const Places& at, const std::byte* data, int64_t stride, const std::byte* neutral) {
  const HostTree& tree = maps_.tree();
  const int32_t rank = transport_.rank();
  const int64_t size = dtype_size(at.term), slices = maps_.added() + 1;
  const auto slice_of = [&](int32_t owner) {
    return const_cast<std::byte*>(data != nullptr ? data + owner * stride * size : neutral);
  };
  transfers_.clear();
  copies_.clear();
  const std::vector<int32_t>& here = tree.ranks_of(tree.host());
  for (size_t local = 0; local < here.size(); ++local) {
    const int32_t peer = here[local];
    for (int64_t n = 0; peer != rank && n < slices; ++n)
      transfers_.push_back({peer, false, at.from(local, slices, n), at.count, at.term});
    int64_t n = 0;
    const auto give = [&](int32_t owner) {
      if (peer == rank)
        copies_.push_back({slice_of(owner), at.from(local, slices, n++), at.count * size});
      else
        transfers_.push_back({peer, true, slice_of(owner), at.count, at.term});
    };
    for (const int32_t owner : tree.added_by(peer)) give(owner);
    give(peer);
  }
  if (weights_ != nullptr) add_weights_of_all(rank);
  const gpu::Device& device = transport_.device();
  const gpu::Device::Current current(device);
  device.check(device.table().copy_bytes(copies_.data(), std::ssize(copies_), nullptr, transport_.stream()),
               "keeping the own terms of a sum");
  transport_.communicator().exchange(transfers_, transport_.stream());
}

ddp_gpu_tree HostSum::tree_over(const std::byte* parts, int64_t stride, int64_t count, ddp_dtype from,
                                ddp_dtype to) const noexcept {
  ddp_gpu_tree tree{};
  tree.parts = tree.own = parts;
  tree.stride = stride;
  tree.count = count;
  tree.rank = -1;  // all of them are parts
  tree.dtype = from;
  tree.out_dtype = to;
  tree.reduce = reduction_of(shape_.rule.op);
  tree.divisor = 1;
  tree.rounds_nodes = shape_.rule.is_wired() ? 1 : 0;
  return tree;
}

void HostSum::launch(const ddp_gpu_tree& tree, ddp_gpu_stop stop) const {
  const gpu::Device& device = transport_.device();
  const gpu::Device::Current current(device);
  device.check(device.table().tree_sum(&tree, stop, transport_.stream()), "adding the slices of all ranks");
}

void HostSum::add_nodes(const Places& at) const {
  const HostTree& tree = maps_.tree();
  const std::vector<SumNode>& nodes = tree.nodes_of(tree.host());
  const int64_t slices = maps_.added() + 1;
  for (size_t k = 0; k < nodes.size(); ++k) {
    const int64_t first = is_raw(nodes[k], shape_) ? slices - 1 : 0;  // of the others' slices it crosses as it is
    ddp_gpu_tree sum = tree_over(at.from(0, slices, first), slices * at.count, (slices - first) * at.count, at.term, at.sum);
    sum.out = at.node(maps_.own_node(k, first));
    sum.leaves = static_cast<int32_t>(nodes[k].hi - nodes[k].lo);
    sum.rank_at = maps_.local_at(nodes[k]);
    if (weights_ != nullptr) sum.weights = weights_ + tree.order_of(tree.ranks_of(tree.host()).front());
    launch(sum, nullptr);
  }
}

void HostSum::cross(const Places& at) {
  const HostTree& tree = maps_.tree();
  const int32_t rank = transport_.rank();
  const std::vector<int32_t>& here = tree.ranks_of(tree.host());
  const std::vector<SumNode>& nodes = tree.nodes_of(tree.host());
  const std::vector<int32_t>& owners = tree.added_by(rank);
  transfers_.clear();
  for (size_t n = 0; n < owners.size(); ++n)
    for (size_t k = 0; k < nodes.size(); ++k) {
      const auto slice = static_cast<int64_t>(n);
      if (!is_raw(nodes[k], shape_)) {
        transfers_.push_back({owners[n], true, at.node(maps_.own_node(k, slice)), at.count, at.sum});
        continue;
      }
      const auto local = std::lower_bound(here.begin(), here.end(), maps_.rank_at(nodes[k].lo)) - here.begin();
      std::byte* const term = at.from(static_cast<size_t>(local), maps_.added() + 1, slice);
      transfers_.push_back({owners[n], true, term, at.count, at.term});
    }
  int64_t leaf = 0;
  for (int32_t host = 0; host < tree.host_count(); ++host) {
    if (host == tree.host()) continue;
    const int32_t adder = tree.adder_of(host, rank);
    for (size_t k = 0; k < tree.nodes_of(host).size(); ++k) {
      const bool raw = is_raw(tree.nodes_of(host)[k], shape_);
      std::byte* const to = raw && at.widens() ? at.leaf(leaf++) : at.node(maps_.node_of(host, k));
      transfers_.push_back({adder, false, to, at.count, raw ? at.term : at.sum});
    }
  }
  transport_.communicator().exchange(transfers_, transport_.stream());
}

/// As their host would have made them.
void HostSum::widen_leaves(const Places& at) const {
  const HostTree& tree = maps_.tree();
  int64_t leaf = 0;
  for (int32_t host = 0; host < tree.host_count(); ++host)
    for (size_t k = 0; host != tree.host() && k < tree.nodes_of(host).size(); ++k) {
      const SumNode& node = tree.nodes_of(host)[k];
      if (!is_raw(node, shape_)) continue;
      ddp_gpu_tree sum = tree_over(at.leaf(leaf++), at.count, at.count, at.term, at.sum);
      sum.out = at.node(maps_.node_of(host, k));
      sum.leaves = 1;
      if (weights_ != nullptr) sum.weights = weights_ + tree.order_of(maps_.rank_at(node.lo));
      sum.rank_at = nullptr;
      launch(sum, nullptr);
    }
}

void HostSum::join(const Places& at, std::byte* out, ddp_gpu_stop stop) const {
  const bool averages = shape_.rule.op == DDP_AVERAGE && !shape_.rule.is_wired();  // wired terms are divided before
  ddp_gpu_tree sum = tree_over(at.nodes, at.count, at.count, at.sum, at.term);
  sum.out = out;
  sum.leaves = maps_.positions();
  sum.rank_at = maps_.node_at();
  sum.divisor = averages && weights_ == nullptr ? shape_.rule.divisor : 1;
  if (averages && weights_ != nullptr) {
    sum.by_weight = 1;
    sum.sum_weights = weights_;
    sum.sum_weight_at = maps_.order_at();
  }
  launch(sum, stop);
}

}  // namespace ddp::nccl
