// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/wire.hpp"

#include "device/cpu/arrays.hpp"

namespace ddp::cpu::wire {

void finish(const ReduceRule& rule, const void* sum, void* out, int64_t count) noexcept {
  convert(rule.wire, sum, rule.dtype, out, count);
  const bool corrects =
      rule.by_weight && rule.op == DDP_AVERAGE && rule.dtype != rule.wire && rule.weight_sum != rule.divisor;
  if (corrects) scale(rule.dtype, out, count, rule.divisor / rule.weight_sum);
}

}  // namespace ddp::cpu::wire
