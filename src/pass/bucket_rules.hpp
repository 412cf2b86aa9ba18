// SPDX-License-Identifier: Apache-2.0
// How the gradients of a model are summed, by their type: a value.
// Tested by conformance/wire_hook_test.cpp and conformance/bit_rule_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/plan.hpp"
#include "ddp/model.h"
#include "device/cpu/reduce.hpp"

namespace ddp::pass {

struct BucketRules {
  ddp_reduce reduce = DDP_AVERAGE;
  int32_t divisor = 1;                        // of a mean: ranks, or virtual ranks
  bool by_weight = false;                     // the mean is one by the ranks' weights
  ddp_dtype wire = cpu::ReduceRule::kAsItIs;  // in which gradients are sent

  /// Of gradients on one rank, or in one part of the global batch.
  [[nodiscard]] cpu::ReduceRule of(ddp_dtype dtype) const noexcept {
    cpu::ReduceRule rule{dtype, reduce, divisor, by_weight};
    const bool narrows = wire != DDP_F32 && (dtype == DDP_F32 || dtype == DDP_F64);
    rule.wire = narrows ? wire : cpu::ReduceRule::kAsItIs;
    rule.widened = widens(dtype);
    return rule;
  }
  /// Of each bucket.
  [[nodiscard]] std::vector<cpu::ReduceRule> of(const Plan& plan) const {
    std::vector<cpu::ReduceRule> rules;
    for (const PlannedBucket& planned : plan) rules.push_back(of(planned.dtype));
    return rules;
  }
  /// Are gradients of 16 bits sent as F32?
  [[nodiscard]] bool widens(ddp_dtype dtype) const noexcept {
    return wire == DDP_F32 && (dtype == DDP_F16 || dtype == DDP_BF16);
  }
  /// Of the buckets on a GPU, in the type that is sent.
  [[nodiscard]] int64_t largest_bytes_on_gpu(const Plan& plan) const noexcept {
    int64_t bytes = 0;
    for (const PlannedBucket& bucket : plan)
      if (bucket.on_gpu) bytes = std::max(bytes, bucket.count * dtype_size(widens(bucket.dtype) ? DDP_F32 : bucket.dtype));
    return bytes;
  }
};

}  // namespace ddp::pass
