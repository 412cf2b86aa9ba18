#include "collective/nccl/mean.hpp"

namespace ddp::nccl {
namespace {

bool divides_first(const cpu::ReduceRule& rule) noexcept { return rule.is_wired() || travel_dtype(rule) == DDP_F16; }

}  // namespace

ddp_dtype travel_dtype(const cpu::ReduceRule& rule) noexcept {
  const bool may_not_fit = rule.dtype == DDP_F16 && rule.by_weight;
  return rule.widened || (may_not_fit && !rule.is_wired()) ? DDP_F32 : rule.travel_dtype();
}

Factors factors_of(const cpu::ReduceRule& rule, double weight) noexcept {
  if (rule.op != DDP_AVERAGE) return Factors{weight, 1};
  if (divides_first(rule)) return Factors{weight / rule.divisor, 1};
  return Factors{weight, 1.0 / rule.divisor};
}

double late_factor(const cpu::ReduceRule& rule, const collective::BucketHeader& joined) noexcept {
  if (rule.op != DDP_AVERAGE) return 1;
  const double divided = divides_first(rule) ? rule.divisor : 1;
  return divided / (rule.by_weight ? joined.participation.weight : rule.divisor);
}

}  // namespace ddp::nccl
