// SPDX-License-Identifier: Apache-2.0
#include "nccl/mean.hpp"

#include <cmath>
#include <limits>

namespace ddp::nccl {
namespace {

/// Are terms divided?
bool divides_first(const cpu::ReduceRule& rule, Adder adder) noexcept {
  return rule.is_wired() || (adder == Adder::kNccl && travel_dtype(rule) == DDP_F16);
}

}  // namespace

Scale Scale::by(double divisor) noexcept {
  int exponent = 0;
  if (std::frexp(divisor, &exponent) == 0.5) return Scale{1 / divisor, 1};
  return Scale{1, divisor};
}

ddp_dtype travel_dtype(const cpu::ReduceRule& rule, Adder adder) noexcept {
  const bool may_not_fit = rule.dtype == DDP_F16 && rule.by_weight && !rule.is_wired();
  return adder == Adder::kNccl && (rule.widened || may_not_fit) ? DDP_F32 : rule.travel_dtype();
}

Factors factors_of(const cpu::ReduceRule& rule, double weight, Adder adder) noexcept {
  if (rule.op != DDP_AVERAGE) return Factors{{adder == Adder::kNccl || rule.is_wired() ? weight : 1, 1}, {}};
  if (divides_first(rule, adder)) {
    Scale before = Scale::by(rule.divisor);
    if (weight != 1) before = Scale{weight, static_cast<double>(rule.divisor)};
    return Factors{before, {}};
  }
  if (adder == Adder::kTree) return {};
  return Factors{{weight, 1}, Scale::by(rule.divisor)};
}

Scale late_scale(const cpu::ReduceRule& rule, const collective::BucketHeader& joined, Adder adder) noexcept {
  if (rule.op != DDP_AVERAGE) return {};
  const double divisor = rule.by_weight ? joined.participation.weight : rule.divisor;
  if (divides_first(rule, adder)) return Scale{rule.divisor / divisor, 1};
  return adder == Adder::kTree ? Scale{} : Scale::by(divisor);
}

void move(const gpu::Device& device, const std::vector<ddp_gpu_span>& spans, const Conversion& how, ddp_gpu_stop stop,
          void* stream, const char* doing) {
  if (spans.empty()) return;
  const gpu::Device::Current current(device);
  const ddp_gpu_table& table = device.table();
  const auto count = static_cast<int64_t>(spans.size());
  device.check(how.by.is_one()
                   ? table.move(spans.data(), count, how.from, how.to, 1, kNoLimit, stop, stream)
                   : table.move_quotient(spans.data(), count, how.from, how.to, how.by.factor, how.by.divisor, stop, stream),
               doing);
}

}  // namespace ddp::nccl
