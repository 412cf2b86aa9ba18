// SPDX-License-Identifier: Apache-2.0
// The sum over ranks that is no NCCL's, by the CPU's loops.
#include "core/sum_tree.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/reduce.hpp"
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/launch.hpp"

namespace ddp::test::fake_gpu::entry {
namespace {

/// With real addresses.
struct Sum {
  cpu::ReduceRule rule;
  int64_t count = 0;
  int32_t ranks = 0;
  std::vector<const void*> slices;  // of the ranks
  const double* weights = nullptr;
  void* out = nullptr;
  bool by_weight = false;

  void run() {
    if (by_weight) rule.by_weight = true, rule.weight_sum = sum_of_weights();
    // A rank that does not count has sent -0.0 with the weight 0: it is left out as the CPU leaves it out.
    bool any = false;
    for (size_t rank = 0; rank < slices.size(); ++rank) {
      if (weights != nullptr && weights[rank] == 0) slices[rank] = nullptr;
      any = any || slices[rank] != nullptr;
    }
    if (any)
      cpu::reduce(rule, slices.data(), ranks, &out, 1, count, weights);
    else
      make_neutral();
  }
  /// What changes nothing when it is added.
  void make_neutral() const {
    for (int64_t i = 0; is_floating(rule.dtype) && i < count; ++i) {
      const float nothing = -0.0F;
      cpu::convert(DDP_F32, &nothing, rule.dtype, static_cast<std::byte*>(out) + i * dtype_size(rule.dtype), 1);
    }
  }
  [[nodiscard]] double sum_of_weights() const {
    return ddp::tree_sum(
        0, ranks, [&](int64_t rank) { return weights[rank]; }, [](double a, double b) { return a + b; });
  }
};

cpu::ReduceRule rule_of(const ddp_gpu_tree& tree) {
  cpu::ReduceRule rule;
  rule.dtype = static_cast<ddp_dtype>(tree.dtype);
  const bool averages = tree.reduce == DDP_GPU_SUM && (tree.by_weight != 0 || tree.divisor != 1);
  rule.op = tree.reduce == DDP_GPU_MIN ? DDP_MIN : tree.reduce == DDP_GPU_MAX ? DDP_MAX : averages ? DDP_AVERAGE : DDP_SUM;
  rule.divisor = static_cast<int32_t>(tree.divisor);
  if (tree.rounds_nodes != 0) rule.wire = rule.dtype;
  return rule;
}

}  // namespace

int32_t tree_sum(const ddp_gpu_tree* tree, ddp_gpu_stop stop, void* stream) {
  return launch("tree_sum", stream, [&](Touches& touches) -> Work {
    if (tree->count < 0 || tree->ranks < 1 || tree->dtype < DDP_F32 || tree->dtype > DDP_U8) return nullptr;
    Sum sum;
    sum.rule = rule_of(*tree);
    sum.count = tree->count;
    sum.ranks = tree->ranks;
    sum.by_weight = tree->by_weight != 0;
    const int64_t bytes = tree->count * dtype_size(sum.rule.dtype);
    for (int32_t rank = 0; rank < tree->ranks; ++rank) {
      const auto* const part = static_cast<const std::byte*>(tree->parts) + rank * tree->stride * dtype_size(sum.rule.dtype);
      sum.slices.push_back(touches.read(rank == tree->rank ? static_cast<const std::byte*>(tree->own) : part, bytes));
    }
    if (tree->weights != nullptr)
      sum.weights = touches.read(tree->weights, tree->ranks * static_cast<int64_t>(sizeof(double)));
    sum.out = touches.write(static_cast<std::byte*>(tree->out), bytes);
    return [sum = std::move(sum), word = touches.stop_word(stop)]() mutable {
      if (!is_stopped(word)) sum.run();
    };
  });
}

}  // namespace ddp::test::fake_gpu::entry
