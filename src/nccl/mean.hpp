// SPDX-License-Identifier: Apache-2.0
// Where a mean over NCCL is divided, for all collectives and buckets alike: NCCL only adds, in the type that is sent.
// A sum of F16 may not fit although the mean does, so its terms are divided; so are terms sent with 16 bits. All other sums
// are divided afterwards. With weights a term of F16 may not fit either, and the sum of the weights is known too late to
// divide by it: such terms are sent as F32, as are all of 16 bits if the rule is widened.
// Where the library adds (tree_sum.hpp), owners multiply by the weights and divide, and terms are sent unchanged; terms of
// 16 bits on the wire are made as the CPU makes them. Tested by gpu_host/mean_test.cpp and gpu_host/reproducible_test.cpp.
#pragma once

#include <limits>
#include <vector>

#include "device/cpu/reduce.hpp"
#include "device/gpu/device.hpp"
#include "exchange/bucket_header.hpp"

namespace ddp::nccl {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();  // of a sum that is not clipped

/// Who adds.
enum class Adder { kNccl, kTree };

/// The type in which terms and sums of a bucket are sent.
[[nodiscard]] ddp_dtype travel_dtype(const cpu::ReduceRule& rule, Adder adder = Adder::kNccl) noexcept;

/// x * factor / divisor, each rounded: the division of the CPU, where a product with 1 / divisor would have other bits.
struct Scale {
  double factor = 1;
  double divisor = 1;

  /// By a power of two the product has the same bits.
  [[nodiscard]] static Scale by(double divisor) noexcept;
  [[nodiscard]] bool is_one() const noexcept { return factor == 1 && divisor == 1; }
};

/// What a rank's terms and the sum are scaled with.
struct Factors {
  Scale before;
  Scale after;
};
/// `weight`: of this rank.
[[nodiscard]] Factors factors_of(const cpu::ReduceRule& rule, double weight = 1, Adder adder = Adder::kNccl) noexcept;
/// `after`, once the weights of all ranks are known.
[[nodiscard]] Scale late_scale(const cpu::ReduceRule& rule, const collective::BucketHeader& joined,
                               Adder adder = Adder::kNccl) noexcept;

/// The conversion during a move.
struct Conversion {
  ddp_dtype from;
  ddp_dtype to;
  Scale by;
};
/// One launch of spans. A NaN that is scaled becomes the CPU's.
void move(const gpu::Device& device, const std::vector<ddp_gpu_span>& spans, const Conversion& how, ddp_gpu_stop stop,
          void* stream, const char* doing);

}  // namespace ddp::nccl
