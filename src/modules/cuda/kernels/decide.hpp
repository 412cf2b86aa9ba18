// SPDX-License-Identifier: Apache-2.0
// What becomes of a step, from an exact sum of squares (core/exact_sum.cpp's value, optim/policy.cpp's decide). Pure
// functions, also for the host.
// Tested by unit/cuda/decide_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/gpu/gpu_abi.h"
#include "modules/cuda/kernels/norm_terms.hpp"

namespace ddp::cuda {

DDP_HD int leading_zeros(uint64_t x) noexcept {
#if defined(__CUDA_ARCH__)
  return __clzll(static_cast<long long>(x));
#else
  return __builtin_clzll(x);
#endif
}

/// The sum, rounded once to nearest; NaN if a term was, infinity if a term was or the sum is too large.
DDP_HD double sum_of_words(const int64_t* words) noexcept {
  if (words[kSumDigits + 1] != 0) return bits_as<double>(uint64_t{0x7ff8000000000000});
  if (words[kSumDigits] != 0) return bits_as<double>(uint64_t{0x7ff0000000000000});
  uint64_t digits[kSumDigits + 1];
  uint64_t carry = 0;
  for (uint32_t i = 0; i < kSumDigits; ++i) {
    const uint64_t sum = static_cast<uint64_t>(words[i]) + carry;
    digits[i] = sum & 0xffffffff;
    carry = sum >> 32;
  }
  digits[kSumDigits] = carry;
  uint32_t top = kSumDigits;
  while (top > 1 && digits[top] == 0) --top;
  uint64_t head = digits[top] << 32 | digits[top - 1];
  if (head == 0) return 0;
  const int spare = leading_zeros(head);
  head <<= spare;
  bool trace = false;  // is any lower bit than the highest 64 set?
  if (top >= 2) {
    const uint64_t below = digits[top - 2] << 32;
    if (spare > 0) head |= below >> (64 - spare);
    trace = (spare > 0 ? below << spare : below) != 0;
    for (uint32_t i = 0; i + 2 < top; ++i) trace = trace || digits[i] != 0;
  }
  if (trace) head |= 1;
  return ldexp(static_cast<double>(head), (static_cast<int>(top) - 1) * 32 - spare - 1074);
}

DDP_HD ddp_gpu_gate decided(const int64_t* words, double loss_scale, double max_norm, bool skip_nonfinite) noexcept {
  ddp_gpu_gate gate{};
  gate.norm = sqrt(sum_of_words(words)) / loss_scale;
  gate.scale = 1.0 / loss_scale;
  if (max_norm > 0) {
    const double factor = max_norm / (gate.norm + 1e-6);
    if (!(factor >= 1)) gate.scale *= factor;  // a NaN stays
  }
  const bool finite = words[kSumDigits] == 0 && words[kSumDigits + 1] == 0;
  gate.skip = skip_nonfinite && !finite ? 1 : 0;
  return gate;
}

}  // namespace ddp::cuda
