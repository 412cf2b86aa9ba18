// SPDX-License-Identifier: Apache-2.0
// Summing the same span of several ranks in a balanced tree: the one arithmetic that every CPU path shares, so that all
// paths give the same bits.
//
// The rule (public: include/BITS.md, "How the mean is formed"):
//   sum(lo, hi) = x[lo] if hi - lo = 1, else sum(lo, mid) + sum(mid, hi), mid = lo + the largest power of two below hi - lo
//   (core/sum_tree.hpp), in accumulator_dtype(dtype) (F32 for F16/BF16, else the type itself);
//   SUM keeps s = sum(0, n); AVERAGE divides s by `divisor` in the accumulator type (correctly rounded division; for a power
//   of two a multiplication by the exact reciprocal gives the same bits); integers wrap, and their AVERAGE truncates towards
//   zero;
//   then s is rounded once to dtype (round to nearest even). PRODUCT multiplies where SUM adds. MIN and MAX: a NaN anywhere
//   gives NaN; of -0 and +0, MIN gives -0 and MAX +0.
// A rank that does not count (weight 0) is a leaf of -0.0, which changes no bit: its memory is not read, so a NaN in it
//   stays where it is, and the positions of the others do not shift.
// With weights the leaves are x[k] * w[k]: every weight is rounded to the accumulator type once, every product is rounded
//   before it is added, and AVERAGE divides by rule.weight_sum, rounded likewise. The product is taken when the input is
//   loaded, by the rank that adds it, so weights cost no pass over memory and change no input. Weights that are all 1 give
//   the bits of a sum without weights.
// Two bytes on the wire (rule.wire is F16 or BF16; sums of F32 or F64): a rank's term is w = x / divisor (SUM: x), formed in
//   dtype and rounded once to the wire type; the tree's leaves are these terms; every addition is in F32, and every node is
//   rounded once to the wire type; the result is the last node, which dtype holds exactly. So a partial sum between hosts
//   has 16 bits as well, wherever hosts and chunks begin, and a rank that adds in place gets the same bits although nothing
//   is sent. Dividing first keeps F16 in range; what overflows is infinite on all ranks, a NaN is one. With weights x is
//   multiplied before the division, and the result by divisor / weight_sum (rule.by_weight). A rule whose dtype is its wire
//   type adds terms that were rounded already.
// No fused multiply-add, no reordering: AVX-512, AVX2, NEON and portable code give the same bits.
// Tested by unit/device/reduce_test.cpp, weights_test.cpp and wire_test.cpp there (all instruction sets against a naive
// loop, bit for bit).
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "ddp/types.h"

namespace ddp::cpu {

struct ReduceRule {
  ddp_dtype dtype = DDP_F32;
  ddp_reduce op = DDP_AVERAGE;
  int32_t divisor = 1;     // for AVERAGE: the number of contributions in all (world size)
  bool by_weight = false;  // for AVERAGE of floats: divide by weight_sum in its place
  double weight_sum = 1;
  ddp_dtype wire = kAsItIs;  // F16 or BF16: terms and sums under way have this type
  bool widened = false;      // of 16 bits: NCCL adds them as F32, as the loops here do anyway
  bool summed = false;       // inputs are unfinished sums already: they have their weights, and as terms their divisor
  static constexpr ddp_dtype kAsItIs{};

  [[nodiscard]] bool is_wired() const noexcept { return wire != kAsItIs; }
  /// Of terms and results as they are sent.
  [[nodiscard]] ddp_dtype travel_dtype() const noexcept { return is_wired() ? wire : dtype; }
  /// Of unfinished sums.
  [[nodiscard]] ddp_dtype carry_dtype() const noexcept { return is_wired() ? wire : accumulator_dtype(dtype); }
  /// The rule by which terms that pack() made are added.
  [[nodiscard]] ReduceRule packed() const noexcept {
    ReduceRule rule = *this;
    rule.dtype = wire;
    return rule;
  }
};

/// out[k][i] = finish(sum(0, in_count) of element i) for all k. in[k] NULL: rank k does not count; at least one does. Each
/// out may be equal to one of the inputs, but not overlap it otherwise. in_count 1 to any number; out_count 1 or more. Any
/// alignment of the element type;
/// 64-byte alignment is fastest. `weights`: one for each input, above 0, for sums of floats, that of a NULL is ignored;
/// NULL: none.
void reduce(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count,
            int64_t count, const double* weights = nullptr) noexcept;

/// The same sum, unfinished, of carry_dtype(): that of any node [lo, lo + in_count) of a larger tree, because a node's shape
/// depends only on its width. `carry_out` may be equal to an input whose elements have its size.
void reduce_subtree(const ReduceRule& rule, const void* const* in, int32_t in_count, void* carry_out, int64_t count,
                    const double* weights = nullptr) noexcept;

/// A node of the tree whose elements are there: a rank's own, or the unfinished sum of [lo, hi).
struct SumPart {
  int64_t lo = 0;
  int64_t hi = 0;
  const void* data = nullptr;  // NULL: none of its ranks counts
  bool is_leaf = false;        // one rank's elements, of rule.dtype; else of rule.carry_dtype(), as terms of pack() are
  double weight = 1;           // of a leaf; in an unfinished sum the weights are already
};

/// The tree over positions [0, total) from nodes of it that do not overlap, in ascending order; what no node covers does not
/// count; something must. Finishes as reduce(). Each out may be equal to the data of a part whose elements have its size.
void combine(const ReduceRule& rule, const SumPart* nodes, int32_t node_count, int64_t total, void* const* out,
             int32_t out_count, int64_t count) noexcept;
/// The same, unfinished, of carry_dtype(). For a node [lo, lo + total) of a larger tree count positions from lo.
void combine_subtree(const ReduceRule& rule, const SumPart* nodes, int32_t node_count, int64_t total, void* carry_out,
                     int64_t count) noexcept;

/// One rank's term in the wire type, of rule.is_wired(). unpack() makes elements of a finished sum of terms.
void pack(const ReduceRule& rule, const void* in, double weight, void* out, int64_t count) noexcept;
void unpack(const ReduceRule& rule, const void* sum, void* out, int64_t count) noexcept;

/// Finish a carried sum: divide, round, write to all outputs.
void reduce_finish(const ReduceRule& rule, const void* carry, void* const* out, int32_t out_count, int64_t count) noexcept;

/// What runs here: "avx512", "avx2", "neon" or "portable".
[[nodiscard]] const char* instruction_set() noexcept;

/// Use a smaller instruction set than the machine has (tests). Returns false if the machine lacks it.
bool set_instruction_set(const char* name) noexcept;

}  // namespace ddp::cpu
