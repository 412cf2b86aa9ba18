// SPDX-License-Identifier: Apache-2.0
// Who owns which part of a bucket when the optimizer's work is divided among the ranks (ZeRO stage 1: Rajbhandari et al.,
// "ZeRO: memory optimizations toward training trillion parameter models", 2020; here flat slices, so no rank gets a whole
// large tensor).
//
// Rule: rank r owns a contiguous stretch of the bucket. A cut is at the start of a piece or a multiple of kSliceUnit
// elements after it: the last such place at or before r / W of the bucket. So the same blocks of a parameter are worked on
// as a whole whatever the number of ranks: sums over blocks (norms) have the same bits, sharded or not. On a GPU
// each r / W of a bucket is such a place (core/plan.hpp), so there all slices of a bucket are equally long.
// For rules that change whole tensors: each parameter has one owner. The largest ones are given away first, each to the rank
// that has the fewest elements by then.
// Pure functions of the plan. Cost: linear; of whole tensors n log n.
// Tested by unit/core/slices_test.cpp.
#pragma once

#include <vector>

#include "core/ownership.hpp"
#include "core/plan.hpp"

namespace ddp {

inline constexpr int64_t kSliceUnit = kPieceUnit;  // elements

[[nodiscard]] Ownership cut_slices(const PlannedBucket& bucket, int32_t ranks);

/// The same of a whole plan.
struct PlanOwnership {
  std::vector<Ownership> buckets;  // a piece is a position in the bucket
  Ownership parameters;  // a piece is a parameter's number; a span for each bucket in which the rank owns some of it
};
enum class Division {
  kNone,         // every rank owns everything
  kSlices,       // cut_slices
  kWholeTensors  // each parameter has one owner
};
/// `counts[index]`: elements of a parameter.
[[nodiscard]] PlanOwnership own_plan(const Plan& plan, const std::vector<int64_t>& counts, int32_t ranks, Division division);

}  // namespace ddp
