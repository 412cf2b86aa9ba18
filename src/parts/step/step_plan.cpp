// SPDX-License-Identifier: Apache-2.0
#include "parts/step/step_plan.hpp"

namespace ddp::parts {
namespace {

/// May a bucket change before the others are reduced? Not behind a hook that may still fail, and not on a GPU where this
/// rank does not know what the others contribute.
bool may_follow(const StepSetting& setting) noexcept {
  return !setting.reduces_copy && !(setting.some_on_gpu() && setting.partial_allowed);
}

StepPlan::When when_of(const StepRequest& request, const StepSetting& setting, bool prepared) noexcept {
  if (!request.in_pass()) return StepPlan::When::kAtOptimizerStep;
  if (!prepared || !may_follow(setting)) return StepPlan::When::kAtEndOfPass;
  return step_exchanges(request, setting).fused ? StepPlan::When::kInExchange : StepPlan::When::kBehindBucket;
}

}  // namespace

StepExchanges step_exchanges(const StepRequest& request, const StepSetting& setting) noexcept {
  const bool may_step_in_pass = request.in_backward && !request.whole_tensors;
  return StepExchanges{request.sharded && setting.can_reduce_scatter && !setting.reduces_copy, request.sharded,
                       request.sharded && setting.can_fuse && may_follow(setting) && may_step_in_pass};
}

StepPlan plan_step(const StepRequest& request, const StepSetting& setting, bool prepared) noexcept {
  StepPlan plan;
  plan.when = when_of(request, setting, prepared);
  const bool fused = plan.when == StepPlan::When::kInExchange;
  if (request.sharded) plan.values = fused ? StepPlan::Values::kFusedExchange : StepPlan::Values::kAllGather;
  const bool scatters = prepared && step_exchanges(request, setting).reduce_scatter;
  if (fused || scatters) plan.reduction = StepPlan::Reduction::kToSlices;
  const bool late = plan.when == StepPlan::When::kAtOptimizerStep && request.divides_late && !request.whole_gradient &&
                    may_follow(setting);
  plan.leaves_sum =
      setting.on_gpu && request.divides && !request.whole_tensors && (plan.when == StepPlan::When::kBehindBucket || late);
  if (request.whole_gradient && scatters && !setting.some_on_gpu()) plan.norm = StepPlan::Norm::kWhileReduced;
  return plan;
}

}  // namespace ddp::parts
