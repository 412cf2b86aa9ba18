// SPDX-License-Identifier: Apache-2.0
// Chooses the loop for a reduction. Up to kMaxFold inputs are added in one pass; more, and the less usual operations, go
// block by block through unfinished nodes of the tree that stay in the nearest cache (tree.hpp). Further outputs are copied
// from the first while its block is still there. Any thread; allocates nothing.
// Tested by unit/device/reduce_test.cpp.
#include "device/cpu/reduce.hpp"

#include <algorithm>
#include <cstring>

#include "core/dtype.hpp"
#include "core/float_environment.hpp"
#include "device/cpu/ends.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/tree.hpp"

namespace ddp::cpu {
namespace {

bool adds(const ReduceRule& rule) noexcept { return rule.op == DDP_SUM || rule.op == DDP_AVERAGE; }

/// The loops that add all inputs at once, to one output and over all inputs; or NULL.
struct FoldFns {
  FoldFn to_one = nullptr;
  FoldFn in_place = nullptr;
};
FoldFns folds_of(const ReduceRule& rule, int32_t in_count, const Finish& finish) noexcept {
  if (!adds(rule) || in_count > kMaxFold) return {};
  const Kernels& table = kernels();
  if (finish.weights != nullptr)
    return {table.weighted_to_one[rule.dtype][in_count], table.weighted_in_place[rule.dtype][in_count]};
  return {table.to_one[rule.dtype][in_count][finish.divide], table.in_place[rule.dtype][in_count][finish.divide]};
}

/// A reduction whose inputs are added at once.
struct Fold {
  FoldFn to_one;
  Finish finish;
  const void* const* in;
  int32_t in_count;
  int64_t size;

  /// Elements [at, at + n) of the inputs, to `out` [n].
  void end(int64_t at, int64_t n, void* out) const noexcept {
    Group group[kMaxFold];
    const void* here[kMaxFold] = {};
    for (int32_t k = 0; k < in_count; ++k) {
      group[k].fill(offset(in[k], at * size), n, size);
      here[k] = group[k].bytes;
    }
    to_one(here, group[0].bytes, kGroup, finish);
    group[0].empty(out, n, size);
  }
  /// Elements [at, at + n) by `loop`, n a multiple of kGroup.
  void groups(FoldFn loop, int64_t at, int64_t n, void* out) const noexcept {
    const void* here[kMaxFold] = {};
    for (int32_t k = 0; k < in_count; ++k) here[k] = offset(in[k], at * size);
    loop(here, out, n, finish);
  }
  void write(void* out, int64_t count) const noexcept {
    const Cut c = cut(out, size, count);
    if (c.head > 0) end(0, c.head, out);
    if (c.tail > c.head) groups(to_one, c.head, c.tail - c.head, offset(out, c.head * size));
    if (count > c.tail) end(c.tail, count - c.tail, offset(out, c.tail * size));
  }
  void over_inputs(FoldFn in_place, int64_t count) const noexcept {
    const Cut c = cut(in[0], size, count);
    if (c.head > 0) end_over_inputs(0, c.head);
    if (c.tail > c.head) groups(in_place, c.head, c.tail - c.head, nullptr);
    if (count > c.tail) end_over_inputs(c.tail, count - c.tail);
  }
  void end_over_inputs(int64_t at, int64_t n) const noexcept {
    Group result;
    end(at, n, result.bytes);
    for (int32_t k = 0; k < in_count; ++k) result.empty(const_cast<void*>(offset(in[k], at * size)), n, size);
  }
};

/// Inputs from element `at` on, as leaves of a tree over [0, in_count).
struct Inputs {
  const void* const* in;
  int32_t in_count;
  const double* weights;
  int64_t at;
  int64_t size;

  [[nodiscard]] Leaves leaves(int64_t lo, int64_t hi) const noexcept {
    Leaves all;
    for (int64_t k = lo; k < hi; ++k)
      all.add(in[k] != nullptr ? offset(in[k], at * size) : nullptr, weights != nullptr ? weights[k] : 1.0);
    all.trim();
    return all;
  }
  void part(int64_t lo, int64_t hi, Part& part) const noexcept {
    if (hi - lo > kMaxFold) return;
    part.leaves = leaves(lo, hi);
    part.known = part.leaves.width > 0 ? Known::kLeaves : Known::kNothing;
  }
};

/// step(node, at, n) for the unfinished sum of every block. `carry`: where slot 0 is to be; NULL: in memory of its own.
template <class Step>
void each_block(const ReduceRule& rule, const void* const* in, int32_t in_count, const double* weights, void* carry,
                int64_t count, const Step& step) noexcept {
  const NodeLoops loops(rule, weights != nullptr);
  Slots slots(levels_of_eights(in_count), loops.node_size());
  for (int64_t at = 0; at < count; at += slots.elements()) {
    const int64_t n = std::min(slots.elements(), count - at);
    if (carry != nullptr) slots.put_first(offset(carry, at * loops.node_size()));
    const Inputs inputs{in, in_count, weights, at, loops.leaf_size()};
    step(evaluate(loops, inputs, 0, in_count, slots, 0, n), at, n);
  }
}

void reduce_blocks(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count,
                   int64_t count, const double* weights) noexcept {
  const int64_t size = dtype_size(rule.dtype);
  const Finish finish = finish_of(rule, weights != nullptr);
  each_block(rule, in, in_count, weights, nullptr, count, [&](const void* node, int64_t at, int64_t n) {
    finish_node(rule, finish, node, offset(out[0], at * size), n);
    copy_to_rest(out, out_count, at * size, n * size);
  });
}

/// Inputs that one loop adds, with outputs that are not the inputs.
void fold_blocks(const Fold& fold, void* const* out, int32_t out_count, int64_t count) noexcept {
  const int64_t block = Slots::kMostBlock / fold.size;
  for (int64_t at = 0; at < count; at += block) {
    const int64_t n = std::min(block, count - at);
    const void* here[kMaxFold] = {};
    for (int32_t k = 0; k < fold.in_count; ++k) here[k] = offset(fold.in[k], at * fold.size);
    Fold{fold.to_one, fold.finish, here, fold.in_count, fold.size}.write(offset(out[0], at * fold.size), n);
    copy_to_rest(out, out_count, at * fold.size, n * fold.size);
  }
}

/// Up to kMaxFold inputs in one loop. False: there is no loop for them.
bool try_fold(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count,
              int64_t count, const double* weights) noexcept {
  if (in_count > kMaxFold || rule.is_wired() || !adds(rule)) return false;
  Leaves leaves;
  if (std::find(in, in + in_count, nullptr) != in + in_count) {  // perhaps a smaller tree
    leaves = Inputs{in, in_count, weights, 0, 0}.leaves(0, in_count);
    if (leaves.has_holes) return false;
    in = leaves.at;
    in_count = leaves.width;
    if (weights != nullptr) weights = leaves.weight;
  }
  Finish finish = finish_of(rule, weights != nullptr);
  finish.weights = weights;
  const FoldFns loops = folds_of(rule, in_count, finish);
  if (loops.to_one == nullptr) return false;
  const Fold fold{loops.to_one, finish, in, in_count, dtype_size(rule.dtype)};
  if (out_count == in_count && std::equal(out, out + out_count, in))
    fold.over_inputs(loops.in_place, count);
  else if (out_count == 1)
    fold.write(out[0], count);
  else
    fold_blocks(fold, out, out_count, count);
  return true;
}

}  // namespace

void reduce(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count,
            int64_t count, const double* weights) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  if (!try_fold(rule, in, in_count, out, out_count, count, weights))
    reduce_blocks(rule, in, in_count, out, out_count, count, weights);
}

void reduce_subtree(const ReduceRule& rule, const void* const* in, int32_t in_count, void* carry_out, int64_t count,
                    const double* weights) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  const bool own_memory =
      std::find(in, in + in_count, carry_out) != in + in_count;  // an input is read after the first node was written
  const int64_t size = dtype_size(rule.carry_dtype());
  each_block(rule, in, in_count, weights, own_memory ? nullptr : carry_out, count,
             [&](const void* node, int64_t at, int64_t n) {
               void* const to = offset(carry_out, at * size);
               if (node != to) std::memcpy(to, node, static_cast<size_t>(n * size));
             });
}

void pack(const ReduceRule& rule, const void* in, double weight, void* out, int64_t count) noexcept {
  reduce_subtree(rule, &in, 1, out, count, &weight);
}

void unpack(const ReduceRule& rule, const void* sum, void* out, int64_t count) noexcept {
  reduce_finish(rule, sum, &out, 1, count);
}

void reduce_finish(const ReduceRule& rule, const void* carry, void* const* out, int32_t out_count, int64_t count) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  const int64_t size = dtype_size(rule.dtype);
  const int64_t carry_size = dtype_size(rule.carry_dtype());
  const int64_t block = out_count == 1 ? count : Slots::kMostBlock / carry_size;
  const Finish finish = finish_of(rule, false);
  for (int64_t at = 0; at < count; at += block) {
    const int64_t n = std::min(block, count - at);
    finish_node(rule, finish, offset(carry, at * carry_size), offset(out[0], at * size), n);
    copy_to_rest(out, out_count, at * size, n * size);
  }
}

}  // namespace ddp::cpu
