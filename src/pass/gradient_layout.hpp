// SPDX-License-Identifier: Apache-2.0
// The layout of the program's gradients in memory that the group gave out on a GPU, and which buckets can be reduced there.
//
// A bucket is one block if its gradients are contiguous in one piece of such memory. There are two
// kinds. In the plan's order and at its offsets, so that it has no padding either: then it has the plan's length, and each
// rank decides alone. In any order: then NCCL sums it unchanged, if it has the same layout on all ranks, which they check
// with each other. A gap is never written, because the program may use it. Gradients that are reduced in place cannot move.
// Collective once for each model with gradients on GPUs; costs nothing in a pass.
// Tested by gpu_host/own_gradients_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "exchange/ranks.hpp"

namespace ddp::pass {

class GradientLayout {
 public:
  enum class Block {
    kNone,     // it is packed
    kPlanned,  // as the plan has it
    kDense     // in another order, alike on all ranks
  };

  /// Collective if some bucket is on a GPU. Gradients in `table` have their addresses.
  GradientLayout(const collective::Ranks& ranks, const Parameters& table, const Plan& plan);

  [[nodiscard]] bool some_on_gpu() const noexcept { return some_on_gpu_; }
  [[nodiscard]] Block of(size_t bucket) const noexcept { return blocks_[bucket]; }

 private:
  bool some_on_gpu_;           // buckets
  std::vector<Block> blocks_;  // by bucket
};

}  // namespace ddp::pass
