// SPDX-License-Identifier: Apache-2.0
// Unfinished sums in the tree of core/sum_tree.hpp, block by block, so that the data in use stays in the nearest cache.
// Internal to this folder:
// reduce.hpp is what others call. Any thread; allocates nothing.
// Tested by unit/device/reduce_test.cpp, weights_test.cpp, wire_test.cpp and combine_test.cpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/sum_tree.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/reduce.hpp"

namespace ddp::cpu {

/// Up to kMaxFold neighbouring leaves; NULL: does not count.
struct Leaves {
  const void* at[kMaxFold];
  double weight[kMaxFold];
  int32_t width = 0;
  bool has_holes = false;

  void add(const void* leaf, double w) noexcept {
    at[width] = leaf;
    weight[width++] = w;
  }
  /// Leave out what changes no bit: missing leaves at the right, missing left halves, and any where two leaves or fewer are
  /// left.
  void trim() noexcept;
};

/// How one rule makes nodes of leaves, and of other nodes.
class NodeLoops {
 public:
  NodeLoops(const ReduceRule& rule, bool weighted) noexcept;

  [[nodiscard]] int64_t leaf_size() const noexcept { return leaf_size_; }
  [[nodiscard]] int64_t node_size() const noexcept { return node_size_; }
  /// out = (left +) the tree over `leaves`, trimmed and not empty. `left` may be NULL or equal to out.
  void fold(const void* left, const Leaves& leaves, void* out, int64_t n) const noexcept;
  /// out = a + b. `out` may be equal to either.
  void join(const void* a, const void* b, void* out, int64_t n) const noexcept;

 private:
  void fold_filled(const void* left, const Leaves& leaves, void* out, int64_t n) const noexcept;
  void fold_some(const void* left, const void* const* in, const double* weights, int32_t width, void* out,
                 int64_t n) const noexcept;
  void fold_doubles(const void* left, const Leaves& leaves, void* out, int64_t n) const noexcept;

  const NodeKernels* leaves_;
  const NodeKernels* nodes_;  // of inputs that are nodes
  Finish finish_;
  ddp_dtype leaf_;
  ddp_dtype wire_;
  int64_t leaf_size_;
  int64_t node_size_;
  bool weighted_;
  bool repeats_;     // MIN, MAX: an input may stand twice
  bool multiplies_;  // PRODUCT
};

/// The memory of unfinished nodes while a block is worked on.
class Slots {
 public:
  static constexpr int64_t kBytes = 65536;
  static constexpr int64_t kMostBlock = 16384;  // README.md, "More than eight inputs", has the reason

  /// For a tree of `levels` nodes that are under way at once.
  Slots(int levels, int64_t node_size) noexcept {
    const int64_t most = kBytes / levels < kMostBlock ? kBytes / levels : kMostBlock;
    elements_ = most / node_size / kGroup * kGroup;
    bytes_ = elements_ * node_size;
  }
  [[nodiscard]] int64_t elements() const noexcept { return elements_; }
  /// Slot 0 is here and not in this memory.
  void put_first(void* to) noexcept { first_ = to; }
  [[nodiscard]] void* operator[](int level) noexcept {
    return level == 0 && first_ != nullptr ? first_ : memory_ + level * bytes_;
  }

 private:
  alignas(64) std::byte memory_[kBytes];
  int64_t elements_ = 0;
  int64_t bytes_ = 0;
  void* first_ = nullptr;
};

/// Levels of a tree whose leaves are folded eight at a time; each of them one at a time.
[[nodiscard]] inline int levels_of_eights(int64_t n) noexcept {
  const int levels = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1) / kMaxFold));
  return levels > 0 ? levels : 1;
}
[[nodiscard]] inline int levels_of_ones(int64_t n) noexcept {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))) + 1;
}

enum class Known { kNothing, kLeaves, kNode, kParts };

/// What a source knows of a node: leaves to fold, or the sum itself.
struct Part {
  Known known = Known::kParts;
  const void* node = nullptr;
  Leaves leaves;
};

/// The sum of [lo, hi) for n elements: in slots[level], or where the source has it; NULL: nothing counts.
/// `source.part(lo, hi, part)` returns the known part; kParts for a single position is not an answer.
template <class Source>
const void* evaluate(const NodeLoops& loops, const Source& source, int64_t lo, int64_t hi, Slots& slots, int level,
                     int64_t n) noexcept {
  Part part;
  source.part(lo, hi, part);
  if (part.known == Known::kNothing) return nullptr;
  if (part.known == Known::kNode) return part.node;
  void* const here = slots[level];
  if (part.known == Known::kLeaves) {
    loops.fold(nullptr, part.leaves, here, n);
    return here;
  }
  const int64_t mid = sum_mid(lo, hi);
  const void* const left = evaluate(loops, source, lo, mid, slots, level, n);
  if (left == nullptr) return evaluate(loops, source, mid, hi, slots, level, n);
  if (hi - mid <= kMaxFold) {
    Part right;
    source.part(mid, hi, right);
    if (right.known == Known::kLeaves) {
      loops.fold(left, right.leaves, here, n);
      return here;
    }
  }
  const void* const right = evaluate(loops, source, mid, hi, slots, left == here ? level + 1 : level, n);
  if (right == nullptr) return left;
  loops.join(left, right, here, n);
  return here;
}

/// Divide, round and write [n] to `out`.
void finish_node(const ReduceRule& rule, const Finish& finish, const void* node, void* out, int64_t n) noexcept;
[[nodiscard]] Finish finish_of(const ReduceRule& rule, bool weighted) noexcept;
/// Bytes [from, from + bytes) of out[0] to all others.
void copy_to_rest(void* const* out, int32_t out_count, int64_t from, int64_t bytes) noexcept;

}  // namespace ddp::cpu
