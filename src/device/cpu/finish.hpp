// SPDX-License-Identifier: Apache-2.0
// How a sum becomes a mean: by a division, or by a multiplication that gives the same bits. A pure function.
// Tested by unit/device/reduce_test.cpp.
#pragma once

#include <cmath>
#include <cstdlib>

#include "core/dtype.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/reduce.hpp"

namespace ddp::cpu {

inline Finish finish_by(const ReduceRule& rule, double divisor) noexcept {
  Finish finish;
  finish.divisor = divisor;
  if (rule.op != DDP_AVERAGE || divisor == 1.0) return finish;
  int exponent = 0;
  const bool power_of_two = std::frexp(divisor, &exponent) == 0.5 && std::abs(exponent) < 64;
  finish.divide = !(power_of_two && is_floating(rule.dtype));
  if (!finish.divide) finish.factor = 1.0 / divisor;
  return finish;
}

}  // namespace ddp::cpu
