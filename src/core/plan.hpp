// Which gradients travel together: a pure function of the registration, so every rank comes to the same plan and overlap
// starts with the first pass.
//
// Rule: parameters are taken in reverse registration order (the order in which backward reaches them), separately for each
// dtype, and for GPU and host memory. A bucket is closed before the parameter that would take it over its limit (first_bytes
// for the first bucket of a dtype, so that communication starts early; bucket_bytes after that). A parameter is never split;
// one that is larger than the limit is alone. Buckets are then ordered by the moment at which their last gradient is
// expected, and are sent in that order whatever order gradients come in.
// (c10d's reducer inspired the two limits; it lets a bucket run over its limit, this plan does not.)
// Cost: linear.
// Tested by unit/core/plan_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp/types.h"

namespace ddp {

struct PlanItem {
  int64_t count = 0;  // elements
  ddp_dtype dtype = DDP_F32;
  bool on_gpu = false;
};

struct PlannedBucket {
  ddp_dtype dtype = DDP_F32;
  bool on_gpu = false;              // where all of its gradients lie
  std::vector<int32_t> parameters;  // in the order in which they are expected
  std::vector<int64_t> offsets;     // where each starts, in elements, on 64-byte boundaries
  int64_t count = 0;                // elements with padding
};

using Plan = std::vector<PlannedBucket>;

/// More pieces than this do not fit into the announcement of a bucket.
inline constexpr size_t kMostPieces = 4096;

[[nodiscard]] Plan plan_buckets(const std::vector<PlanItem>& items, int64_t first_bytes, int64_t bucket_bytes);

/// Equal plans have equal hashes; it is part of every bucket's stamp.
[[nodiscard]] uint64_t hash_plan(const Plan& plan, uint64_t model_hash);

}  // namespace ddp
