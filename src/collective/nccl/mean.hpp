// Where a mean over NCCL is divided, for all collectives and buckets alike: NCCL only adds, in the type that travels.
// A sum of F16 may not fit although the mean does, so its terms are divided; so are terms sent with 16 bits. All else is
// divided behind the sum. With weights a term of F16 may not fit either, and the sum of the weights is known too late to
// divide by it: such terms travel as F32, as do all of 16 bits if the
// rule is widened.
// Tested by gpu_host/mean_test.cpp.
#pragma once

#include "collective/bucket_header.hpp"
#include "device/cpu/reduce.hpp"

namespace ddp::nccl {

/// The type in which terms and sums of a bucket travel.
[[nodiscard]] ddp_dtype travel_dtype(const cpu::ReduceRule& rule) noexcept;

/// What a rank's terms and the sum are multiplied with.
struct Factors {
  double before = 1;
  double after = 1;
};
/// `weight`: of this rank.
[[nodiscard]] Factors factors_of(const cpu::ReduceRule& rule, double weight = 1) noexcept;
/// `after`, once the weights of all ranks are known.
[[nodiscard]] double late_factor(const cpu::ReduceRule& rule, const collective::BucketHeader& joined) noexcept;

}  // namespace ddp::nccl
