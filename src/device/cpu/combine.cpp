// SPDX-License-Identifier: Apache-2.0
// Sums of which nodes are known already (between hosts). Any thread; allocates nothing.
// Tested by unit/device/combine_test.cpp.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/dtype.hpp"
#include "core/float_environment.hpp"
#include "device/cpu/ends.hpp"
#include "device/cpu/reduce.hpp"
#include "device/cpu/tree.hpp"

namespace ddp::cpu {
namespace {

constexpr int64_t kMostInputs = 64;  // leaves that are listed as inputs of reduce()

/// Known nodes from element `at` on.
struct Nodes {
  const SumPart* first;
  const SumPart* end;
  int64_t at;
  int64_t leaf_size;
  int64_t node_size;

  void part(int64_t lo, int64_t hi, Part& part) const noexcept {
    const SumPart* const from = std::partition_point(first, end, [&](const SumPart& p) { return p.hi <= lo; });
    const SumPart* const to = std::partition_point(from, end, [&](const SumPart& p) { return p.lo < hi; });
    const auto is_there = [](const SumPart& p) { return p.data != nullptr; };
    if (std::none_of(from, to, is_there)) {
      part.known = Known::kNothing;
    } else if (hi - lo <= kMaxFold &&
               std::all_of(from, to, [](const SumPart& p) { return p.is_leaf || p.data == nullptr; })) {
      part.known = Known::kLeaves;
      for (int64_t k = lo; k < hi; ++k) part.leaves.add(nullptr, 1.0);
      for (const SumPart* p = from; p != to; ++p) {
        if (p->data == nullptr) continue;
        part.leaves.at[p->lo - lo] = offset(p->data, at * leaf_size);
        part.leaves.weight[p->lo - lo] = p->weight;
      }
      part.leaves.trim();
    } else if (from->lo == lo && from->hi == hi) {
      part.known = Known::kNode;
      part.node = offset(from->data, at * node_size);
    } else {
      assert(hi - lo > 1 && "a part is no node of this tree");
    }
  }
};

bool is_weighted(const SumPart* nodes, int32_t node_count) noexcept {
  return std::any_of(nodes, nodes + node_count,
                     [](const SumPart& p) { return p.is_leaf && p.data != nullptr && p.weight != 1.0; });
}

template <class Step>
void each_block(const ReduceRule& rule, const SumPart* nodes, int32_t node_count, int64_t total, int64_t count,
                const Step& step) noexcept {
  const NodeLoops loops(rule, is_weighted(nodes, node_count));
  Slots slots(levels_of_ones(total), loops.node_size());
  for (int64_t at = 0; at < count; at += slots.elements()) {
    const int64_t n = std::min(slots.elements(), count - at);
    const Nodes known{nodes, nodes + node_count, at, loops.leaf_size(), loops.node_size()};
    step(evaluate(loops, known, 0, total, slots, 0, n), at, n);
  }
}

/// Leaves of a small tree, as inputs of reduce().
struct AsInputs {
  const void* in[kMostInputs] = {};
  double weights[kMostInputs] = {};
  bool weighted = false;

  bool fill(const SumPart* nodes, int32_t node_count, int64_t total) noexcept {
    if (total > kMostInputs) return false;
    for (const SumPart* p = nodes; p != nodes + node_count; ++p) {
      if (p->data == nullptr) continue;
      if (!p->is_leaf) return false;
      in[p->lo] = p->data;
      weights[p->lo] = p->weight;
    }
    weighted = is_weighted(nodes, node_count);
    return true;
  }
};

}  // namespace

void combine(const ReduceRule& rule, const SumPart* nodes, int32_t node_count, int64_t total, void* const* out,
             int32_t out_count, int64_t count) noexcept {
  if (count <= 0) return;
  if (AsInputs leaves; leaves.fill(nodes, node_count, total))
    return reduce(rule, leaves.in, static_cast<int32_t>(total), out, out_count, count,
                  leaves.weighted ? leaves.weights : nullptr);
  const StandardFloats environment;
  const int64_t size = dtype_size(rule.dtype);
  const Finish finish = finish_of(rule, false);
  each_block(rule, nodes, node_count, total, count, [&](const void* node, int64_t at, int64_t n) {
    finish_node(rule, finish, node, offset(out[0], at * size), n);
    copy_to_rest(out, out_count, at * size, n * size);
  });
}

void combine_subtree(const ReduceRule& rule, const SumPart* nodes, int32_t node_count, int64_t total, void* carry_out,
                     int64_t count) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  const int64_t size = dtype_size(rule.carry_dtype());
  each_block(rule, nodes, node_count, total, count, [&](const void* node, int64_t at, int64_t n) {
    void* const to = offset(carry_out, at * size);
    if (node != to) std::memcpy(to, node, static_cast<size_t>(n * size));
  });
}

}  // namespace ddp::cpu
