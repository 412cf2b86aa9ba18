// SPDX-License-Identifier: Apache-2.0
// The sum of the gradients of several parts of the global batch on one rank, formed part after part in the tree over all
// parts (core/sum_tree.hpp): a part that is closed moves into unfinished sums, as a carry moves through a binary counter.
// What goes into the exchange is the node of the tree that this rank holds.
//
// Memory: for `parts` parts ceil(log2(parts)) arrays of the model's size in the carry type. Gradients of 16 bits are
// exchanged as F32, from an array of their own. Cost: closing a part reads and writes each gradient once, and reads one
// more array for each carry.
// Threads: one at a time. Allocates when it is made.
// Tested by conformance/same_bits_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "exchange/transport.hpp"
#include "group/group.hpp"
#include "os/memory.hpp"

namespace ddp::parts {

class PartialSums {
 public:
  /// `rules`: of each bucket's gradients. Collective: what one rank cannot allocate, all throw.
  PartialSums(group::Group& group, const Parameters& table, const Plan& plan, std::vector<cpu::ReduceRule> rules,
              int32_t parts);

  /// Is the bucket sent as F32, in a separate array?
  [[nodiscard]] bool is_widened(size_t bucket) const noexcept {
    return rules_[bucket].carry_dtype() != rules_[bucket].dtype && !rules_[bucket].is_wired();
  }
  /// The array of a bucket that is_widened(), for the piece.
  [[nodiscard]] std::byte* widened(size_t bucket, size_t piece) const noexcept;

  /// The gradients are those of part `index`, from 0: they move into the sums, and become zero. `weight` 0: they do not
  /// count.
  void close(int32_t index, double weight) noexcept;
  /// The gradients of the bucket are those of the last part: they, or the array, become the sum of all parts. False: none
  /// counts, nothing is written.
  bool finish(size_t bucket, int32_t index, double weight) noexcept;
  /// The finished sum over all ranks goes from the array to a gradient.
  void narrow(size_t bucket, size_t piece) const noexcept;

 private:
  struct Nodes;
  struct Free {
    group::Group* group;
    void operator()(std::byte* memory) const noexcept;
  };
  [[nodiscard]] Nodes nodes_of(int32_t carries, double weight) const noexcept;
  void allocate(const Parameters& table);
  [[nodiscard]] std::byte* level(int bit, size_t bucket) const noexcept {
    return levels_[static_cast<size_t>(bit)].data() + offsets_[bucket];
  }
  void add(const Nodes& nodes, size_t bucket, const PlannedPiece& piece, int64_t from, int64_t count,
           void* to) const noexcept;
  [[nodiscard]] std::byte* gradient(size_t bucket, const PlannedPiece& piece) const noexcept;

  group::Group& group_;
  const Parameters& table_;
  const Plan& plan_;
  const std::vector<cpu::ReduceRule> rules_;
  std::vector<int64_t> offsets_;                           // of each bucket in a level, in bytes
  std::vector<os::LargeArray> levels_;                     // level k: the sum of 2^k parts
  std::vector<bool> counts_;                               // by level: some part of it counts
  std::vector<std::unique_ptr<std::byte, Free>> widened_;  // by bucket, or NULL
};

}  // namespace ddp::parts
