// SPDX-License-Identifier: Apache-2.0
#include "nccl/tree_sum.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "nccl/engine.hpp"
#include "nccl/mean.hpp"

namespace ddp::nccl {
namespace {

constexpr int32_t kMostRanks = 8192;                   // of ddp_gpu_tree
constexpr int64_t kBlockingBytes = int64_t{32} << 20;  // of the memory of blocking collectives
constexpr int64_t kWidest = static_cast<int64_t>(sizeof(double));

}  // namespace

TreeSum::TreeSum(Engine& engine, const Shape& shape)
    : engine_(engine), shape_(shape), memory_(engine.tree()->reserve(bytes(engine, shape))) {
  const int32_t ranks = engine.size();
  transfers_.reserve(static_cast<size_t>(ranks - 1) * (shape.sends_weights() ? 4 : 2));
  if (shape.sends_weights()) {
    weight_memory_ = gpu::Array(engine.device(), (ranks + 1) * kWidest, "the weights of the ranks");
    weights_ = reinterpret_cast<double*>(weight_memory_.data());
    const double one = 1;
    engine.device().copy(weights_ + ranks, &one, sizeof one, nullptr);
    engine.device().synchronize(nullptr);  // it may be read late
  }
}

int64_t TreeSum::bytes(const Engine& engine, const Shape& shape) {
  return engine.size() * shape.slice * dtype_size(shape.dtype());
}

std::byte* TreeSum::received(int32_t rank) const noexcept {
  return memory_ + rank * shape_.slice * dtype_size(shape_.dtype());
}

void TreeSum::reduce_scatter(std::byte* block, const collective::Participation& mine) {
  const bool counts = mine.contributors > 0;
  std::byte* const own = block + engine_.rank() * shape_.slice * dtype_size(shape_.dtype());
  reduce_scatter(Slices{counts ? block : nullptr, shape_.slice, shape_.slice}, counts ? mine.weight : 0, own, nullptr);
}

void TreeSum::all_reduce(std::byte* block, const collective::Participation& mine) {
  reduce_scatter(block, mine);
  engine_.communicator().run(uses(), block, engine_.rank(), engine_.stream());
}

void TreeSum::reduce_scatter(const Slices& slices, double weight, std::byte* out, ddp_gpu_stop stop) {
  if (slices.data == nullptr) make_neutral(slices.count);
  if (weights_ != nullptr) set_weight(weight);
  exchange(slices);
  const bool counts = slices.data != nullptr;
  const int64_t begin = engine_.rank() * slices.stride * dtype_size(shape_.dtype());
  add(counts ? slices.data + begin : received(engine_.rank()), slices.count, out, stop);
}

/// 0 * -1.
void TreeSum::make_neutral(int64_t count) const {
  const gpu::Device& device = engine_.device();
  const gpu::Device::Current current(device);
  std::byte* const own = received(engine_.rank());
  const ddp_gpu_span span{own, own, count};
  device.zero(own, count * dtype_size(shape_.dtype()), engine_.stream());
  device.check(device.table().move(&span, 1, shape_.dtype(), shape_.dtype(), -1, kNoLimit, nullptr, engine_.stream()),
               "leaving out a rank");
}

/// By a kernel's argument: memory of the host would have to stay as it is until the device has read it.
void TreeSum::set_weight(double weight) const {
  const gpu::Device& device = engine_.device();
  const gpu::Device::Current current(device);
  const ddp_gpu_span span{weights_ + engine_.size(), weights_ + engine_.rank(), 1};
  device.check(device.table().move(&span, 1, DDP_F64, DDP_F64, weight, kNoLimit, nullptr, engine_.stream()),
               "sending a weight");
}

void TreeSum::exchange(const Slices& slices) {
  const int32_t rank = engine_.rank();
  const int64_t size = dtype_size(shape_.dtype());
  transfers_.clear();
  for (int32_t peer = 0; peer < engine_.size(); ++peer) {
    if (peer == rank) continue;
    const std::byte* const sent = slices.data != nullptr ? slices.data + peer * slices.stride * size : received(rank);
    transfers_.push_back({peer, true, const_cast<std::byte*>(sent), slices.count, shape_.dtype()});
    transfers_.push_back({peer, false, received(peer), slices.count, shape_.dtype()});
    if (weights_ == nullptr) continue;
    transfers_.push_back({peer, true, weights_ + rank, 1, DDP_F64});
    transfers_.push_back({peer, false, weights_ + peer, 1, DDP_F64});
  }
  engine_.communicator().exchange(transfers_, engine_.stream());
}

void TreeSum::add(const std::byte* own, int64_t count, std::byte* out, ddp_gpu_stop stop) const {
  const cpu::ReduceRule& rule = shape_.rule;
  const bool averages = rule.op == DDP_AVERAGE && !rule.is_wired();  // wired terms are divided before
  ddp_gpu_tree tree{};
  tree.parts = memory_;
  tree.own = own;
  tree.out = out;
  tree.stride = shape_.slice;
  tree.count = count;
  tree.rank = engine_.rank();
  tree.ranks = engine_.size();
  tree.dtype = shape_.dtype();
  tree.reduce = reduction_of(rule.op);
  tree.weights = weights_;
  tree.divisor = averages && weights_ == nullptr ? rule.divisor : 1;
  tree.by_weight = averages && weights_ != nullptr ? 1 : 0;
  tree.rounds_nodes = rule.is_wired() ? 1 : 0;
  const gpu::Device& device = engine_.device();
  const gpu::Device::Current current(device);
  device.check(device.table().tree_sum(&tree, stop, engine_.stream()), "adding the slices of all ranks");
}

TreeOrder::TreeOrder(const gpu::Device& device, int32_t rank, int32_t ranks)
    : device_(device), rank_(rank), ranks_(ranks), bytes_(std::max(kBlockingBytes, ranks * kSliceElements * kWidest)) {
  if (ranks > kMostRanks)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "the group option reproducible is for up to %d ranks with tensors on GPUs; this group has %d",
                     kMostRanks, ranks);
  rest_ = gpu::Array(device, ranks_ * kSliceElements * kWidest, "the sums of a group");
  memory_.emplace_back(device, bytes_, "the sums of a group");
}

void TreeOrder::connect(Communicator& communicator, void* stream) {
  std::byte* const memory = memory_.back().data();
  std::vector<Communicator::Transfer> transfers;
  for (int32_t peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    transfers.push_back({peer, true, memory + rank_ * kWidest, 1, DDP_F64});
    transfers.push_back({peer, false, memory + peer * kWidest, 1, DDP_F64});
  }
  communicator.exchange(transfers, stream);
}

std::byte* TreeOrder::reserve(int64_t bytes) {
  if (bytes > bytes_) {
    const int64_t larger = std::max(bytes, 2 * bytes_);
    memory_.emplace_back(device_, larger, "the sums of a group");
    bytes_ = larger;
  }
  return memory_.back().data();
}

int64_t TreeOrder::largest_slice(const Engine& engine, const cpu::ReduceRule& rule) const {
  const int64_t least = TreeSum::bytes(engine, {rule, kSliceElements});
  return std::max<int64_t>(bytes_ / least, 1) * kSliceElements;
}

void TreeOrder::all_reduce(Engine& engine, const Tensor& tensor, ddp_reduce op) {
  const cpu::ReduceRule rule{tensor.dtype, op, ranks_};
  const int64_t size = dtype_size(tensor.dtype);
  int64_t at = 0;
  while (tensor.count - at >= ranks_ * kSliceElements) {
    const int64_t whole = (tensor.count - at) / ranks_ / kSliceElements * kSliceElements;
    const int64_t slice = std::min(whole, largest_slice(engine, rule));
    TreeSum(engine, {rule, slice}).all_reduce(tensor.data + at * size, collective::Participation{});
    at += ranks_ * slice;
  }
  const int64_t rest = (tensor.count - at) * size;
  if (rest == 0) return;
  const gpu::Device& device = engine.device();
  device.copy(rest_.data(), tensor.data + at * size, rest, engine.stream());
  TreeSum(engine, {rule, kSliceElements}).all_reduce(rest_.data(), collective::Participation{});
  device.copy(tensor.data + at * size, rest_.data(), rest, engine.stream());
}

void TreeOrder::reduce_scatter(Engine& engine, const Tensor& input, const Tensor& output, ddp_reduce op) {
  const cpu::ReduceRule rule{input.dtype, op, ranks_};
  const int64_t size = dtype_size(input.dtype);
  const int64_t most = largest_slice(engine, rule);
  for (int64_t at = 0; at < output.count; at += most) {
    const int64_t count = std::min(most, output.count - at);
    TreeSum(engine, {rule, count})
        .reduce_scatter(TreeSum::Slices{input.data + at * size, output.count, count}, 1, output.data + at * size,
                        engine.stop_on(engine.stream()));
  }
}

}  // namespace ddp::nccl
