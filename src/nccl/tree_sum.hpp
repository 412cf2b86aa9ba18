// SPDX-License-Identifier: Apache-2.0
// Sums over the ranks' GPUs with the bits of the CPU (group option `reproducible`): NCCL only moves bytes.
//
// Every rank gets its slice from all others and adds the slices in the order of core/sum_tree.hpp, by one kernel that also
// divides and rounds (ddp_gpu_table::tree_sum). The ranks share a host.
// Terms are sent unchanged, or rounded to the wire type; weights are sent with them, because an owner multiplies.
// A rank that does not count sends -0.0, which changes no bit.
// Cost: a rank sends and receives (n - 1) / n of the bytes once, as in a reduce-scatter of NCCL's, but straight to all
// others; it needs memory for that, as much as the summed array, which all sums of a group share, because they follow each
// other on the communication stream. Nothing is allocated after a TreeSum was made.
// Threads: as the engine.
// Tested by gpu_host/reproducible_test.cpp and gpu_host/reproducible_training_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.hpp"
#include "device/cpu/reduce.hpp"
#include "device/gpu/device.hpp"
#include "device/gpu/gpu_abi.h"
#include "exchange/bucket_header.hpp"
#include "nccl/communicator.hpp"

namespace ddp::nccl {

class Engine;

/// Slices are multiples of this many elements where the library cuts them.
inline constexpr int64_t kSliceElements = 1024;

/// A ddp_gpu_reduce.
[[nodiscard]] constexpr int32_t reduction_of(ddp_reduce op) noexcept {
  return op == DDP_MIN ? DDP_GPU_MIN : op == DDP_MAX ? DDP_GPU_MAX : DDP_GPU_SUM;
}

/// One sum, made again and again.
class TreeSum {
 public:
  struct Shape {
    cpu::ReduceRule rule;
    int64_t slice = 0;  // elements of a rank's slice, at most
    [[nodiscard]] ddp_dtype dtype() const noexcept { return rule.travel_dtype(); }
    /// Are weights sent? With 16 bits on the wire the terms have been multiplied already.
    [[nodiscard]] bool sends_weights() const noexcept { return rule.by_weight && !rule.is_wired(); }
  };

  /// Throws OUT_OF_MEMORY.
  TreeSum(Engine& engine, const Shape& shape);
  TreeSum(const TreeSum&) = delete;
  TreeSum& operator=(const TreeSum&) = delete;

  /// A block of one slice for each rank, of the shape's length: this rank's becomes the sum, or all do. What a rank that
  /// does not count has in the block is not read.
  void reduce_scatter(std::byte* block, const collective::Participation& mine);
  void all_reduce(std::byte* block, const collective::Participation& mine);

  /// Slices of `count` elements that begin `stride` elements apart; NULL: this rank does not count.
  struct Slices {
    const std::byte* data = nullptr;
    int64_t stride = 0;
    int64_t count = 0;
  };
  /// `out` may be this rank's slice, and is else apart from all of them.
  void reduce_scatter(const Slices& slices, double weight, std::byte* out, ddp_gpu_stop stop);

  /// What all_reduce() needs from NCCL in addition to the exchange.
  [[nodiscard]] BlockCollective uses() const noexcept {
    return {BlockCollective::Kind::kAllGather, shape_.slice, shape_.dtype()};
  }

  /// Of the group's memory that it needs.
  [[nodiscard]] static int64_t bytes(const Engine& engine, const Shape& shape);

 private:
  /// Where a rank's slice is received. The own one is that of a rank that does not count.
  [[nodiscard]] std::byte* received(int32_t rank) const noexcept;
  void make_neutral(int64_t count) const;
  void set_weight(double weight) const;
  void exchange(const Slices& slices);
  void add(const std::byte* own, int64_t count, std::byte* out, ddp_gpu_stop stop) const;

  Engine& engine_;
  const Shape shape_;
  std::byte* const memory_;  // the group's
  gpu::Array weight_memory_;
  double* weights_ = nullptr;  // on the device: of all ranks, and then 1; NULL: none are sent
  std::vector<Communicator::Transfer> transfers_;
};

/// What the sums of a group have in common, and its blocking collectives in that order.
class TreeOrder {
 public:
  /// Memory for blocking collectives is taken now, and serves buckets that fit. Throws OUT_OF_MEMORY, NOT_SUPPORTED (more
  /// ranks than the kernel adds).
  TreeOrder(const gpu::Device& device, int32_t rank, int32_t ranks);

  /// NCCL connects each two ranks when they first send to each other, so they do when all are there. Collective.
  void connect(Communicator& communicator, void* stream);

  /// Where sums receive slices, one after the other on the communication stream. What was too small is kept with the group,
  /// because a graph may use it. Throws OUT_OF_MEMORY.
  [[nodiscard]] std::byte* reserve(int64_t bytes);

  // On the communication stream, in parts that fit into the memory. As Engine's.
  void all_reduce(Engine& engine, const Tensor& tensor, ddp_reduce op);
  void reduce_scatter(Engine& engine, const Tensor& input, const Tensor& output, ddp_reduce op);

 private:
  [[nodiscard]] int64_t largest_slice(const Engine& engine, const cpu::ReduceRule& rule) const;

  const gpu::Device& device_;
  const int32_t rank_;
  const int32_t ranks_;
  gpu::Array rest_;  // the end of a tensor that is no whole number of slices
  int64_t bytes_;
  std::vector<gpu::Array> memory_;  // the last one, of bytes_, is in use
};

}  // namespace ddp::nccl
