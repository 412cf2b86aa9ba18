// SPDX-License-Identifier: Apache-2.0
// Who owns what of a list of pieces (the parameters or gradients of a bucket, or those of a whole model). A value: it
// follows from the plan alone, so every rank makes the same one. The exchange asks it (who adds and gives what), and so do
// optimizer state, norms and checkpoints.
//   divided: every element has one owner (core/slices.hpp; ZeRO stage 1).
//   of_all: every rank owns everything, as an optimizer without `shard` does.
// Tested by unit/core/ownership_test.cpp and unit/core/slices_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/owned_span.hpp"

namespace ddp {

class Ownership {
 public:
  /// The spans of one rank: in the order of pieces and elements, none empty.
  using Slice = std::vector<OwnedSpan>;

  Ownership() = default;
  [[nodiscard]] static Ownership divided(std::vector<Slice> by_rank);
  /// `counts`: elements, by piece.
  [[nodiscard]] static Ownership of_all(const std::vector<int64_t>& counts, int32_t ranks);

  [[nodiscard]] int32_t ranks() const noexcept { return static_cast<int32_t>(by_rank_.size()); }
  [[nodiscard]] const Slice& slice(int32_t rank) const noexcept { return by_rank_[static_cast<size_t>(rank)]; }
  /// What a rank owns of a piece. Of a bucket's piece that is one span at most; of a parameter that is split over buckets it
  /// may be one in each.
  [[nodiscard]] OwnedParts parts(int32_t rank, int32_t piece) const noexcept;
  /// Elements that a rank owns, and the most that one rank owns.
  [[nodiscard]] int64_t count(int32_t rank) const noexcept;
  [[nodiscard]] int64_t most() const noexcept;

 private:
  std::vector<Slice> by_rank_;
};

}  // namespace ddp
