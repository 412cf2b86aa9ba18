// SPDX-License-Identifier: Apache-2.0
// The sum over ranks that is no NCCL's, by the CPU's loops.
#include <set>

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
  int64_t leaves = 0;
  std::vector<const std::byte*> slices;  // of the ranks
  const int32_t* rank_at = nullptr;
  const double* weights = nullptr;
  void* out = nullptr;
  ddp_dtype out_dtype = DDP_F32;
  bool by_weight = false;
  const double* sum_weights = nullptr;
  const int32_t* sum_weight_at = nullptr;

  [[nodiscard]] int64_t rank(int64_t at) const { return rank_at == nullptr ? at : rank_at[at]; }

  void run() {
    std::vector<const void*> in;
    std::vector<double> weight;
    for (int64_t at = 0; at < leaves; ++at) {
      in.push_back(rank(at) < 0 ? nullptr : slices[static_cast<size_t>(rank(at))]);
      weight.push_back(rank(at) < 0 ? 0 : weights == nullptr ? 1 : weights[rank(at)]);
    }
    if (by_weight) rule.by_weight = true, rule.weight_sum = sum_of(sum_weights == nullptr ? weight : weights_to_sum());
    // A rank that does not count has sent -0.0 with the weight 0: it is left out as the CPU leaves it out.
    for (size_t at = 0; at < in.size(); ++at)
      if (weights != nullptr && weight[at] == 0) in[at] = nullptr;
    bool any = false;
    for (const void* each : in) any = any || each != nullptr;
    const double* const factors = weights == nullptr ? nullptr : weight.data();
    const auto width = static_cast<int32_t>(leaves);
    if (!any)
      make_neutral();
    else if (out_dtype == rule.dtype)
      cpu::reduce(rule, in.data(), width, &out, 1, count, factors);
    else if (out_dtype == DDP_F32)
      cpu::reduce_subtree(rule, in.data(), width, out, count, factors);
    else
      finish_sums(in, width, factors);
  }
  /// What changes nothing when it is added.
  void make_neutral() const {
    for (int64_t i = 0; is_floating(out_dtype) && i < count; ++i) {
      const float nothing = -0.0F;
      cpu::convert(DDP_F32, &nothing, out_dtype, static_cast<std::byte*>(out) + i * dtype_size(out_dtype), 1);
    }
  }
  /// Sums of nodes in F32, to 16 bits.
  void finish_sums(const std::vector<const void*>& in, int32_t width, const double* factors) {
    std::vector<float> sum(static_cast<size_t>(count));
    cpu::reduce_subtree(rule, in.data(), width, sum.data(), count, factors);
    cpu::ReduceRule end = rule;
    end.dtype = out_dtype;
    cpu::reduce_finish(end, sum.data(), &out, 1, count);
  }
  [[nodiscard]] std::vector<double> weights_to_sum() const {
    std::vector<double> all;
    for (int64_t at = 0; at < leaves; ++at) {
      const int64_t place = sum_weight_at == nullptr ? at : sum_weight_at[at];
      all.push_back(place < 0 ? 0 : sum_weights[place]);
    }
    return all;
  }
  [[nodiscard]] double sum_of(const std::vector<double>& weight) const {
    return ddp::tree_sum(
        0, leaves, [&](int64_t at) { return weight[static_cast<size_t>(at)]; }, [](double a, double b) { return a + b; });
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
    if (tree->count < 0 || tree->leaves < 1 || tree->dtype < DDP_F32 || tree->dtype > DDP_U8) return nullptr;
    Sum sum;
    sum.rule = rule_of(*tree);
    sum.count = tree->count;
    sum.leaves = tree->leaves;
    sum.by_weight = tree->by_weight != 0;
    const int64_t bytes = tree->count * dtype_size(sum.rule.dtype);
    if (tree->rank_at != nullptr) {
      sum.rank_at = touches.read(tree->rank_at, tree->leaves * static_cast<int64_t>(sizeof(int32_t)));
      if (sum.rank_at == nullptr) return [] {};
    }
    int64_t ranks = 0;
    std::set<int64_t> present;
    for (int64_t at = 0; at < sum.leaves; ++at) present.insert(sum.rank(at)), ranks = std::max(ranks, sum.rank(at) + 1);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      if (!present.contains(rank)) {
        sum.slices.push_back(nullptr);
        continue;
      }
      const auto* const part = static_cast<const std::byte*>(tree->parts) + rank * tree->stride * dtype_size(sum.rule.dtype);
      sum.slices.push_back(touches.read(rank == tree->rank ? static_cast<const std::byte*>(tree->own) : part, bytes));
    }
    if (tree->weights != nullptr) sum.weights = touches.read(tree->weights, ranks * static_cast<int64_t>(sizeof(double)));
    if (tree->sum_weights != nullptr) {
      const auto* const at = tree->sum_weight_at;
      if (at != nullptr) sum.sum_weight_at = touches.read(at, tree->leaves * static_cast<int64_t>(sizeof(int32_t)));
      int64_t most = 0;
      for (int64_t k = 0; k < sum.leaves; ++k)
        most = std::max<int64_t>(most, (sum.sum_weight_at == nullptr ? k : sum.sum_weight_at[k]) + 1);
      sum.sum_weights = touches.read(tree->sum_weights, most * static_cast<int64_t>(sizeof(double)));
    }
    sum.out_dtype = tree->out_dtype == 0 ? sum.rule.dtype : static_cast<ddp_dtype>(tree->out_dtype);
    sum.out = touches.write(static_cast<std::byte*>(tree->out), tree->count * dtype_size(sum.out_dtype));
    return [sum = std::move(sum), word = touches.stop_word(stop)]() mutable {
      if (!is_stopped(word)) sum.run();
    };
  });
}

}  // namespace ddp::test::fake_gpu::entry
