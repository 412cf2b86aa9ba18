// SPDX-License-Identifier: Apache-2.0
// Ranks die where a model has two optimizers; the others go on with the bits of the same steps without deaths.
#include "support/check.hpp"
#include "support/keep_runs.hpp"

using Moment = KeepPlan::Moment;

/// Of one model, both sharded, or one; a rank dies before, in, between and behind their steps.
void two_optimizers_go_back_together(bool in_backward) {
  struct Case {
    Moment moment;
    bool shard, shard_second;
  };
  for (const Case& each : {Case{Moment::kInPass, true, true},
                           {Moment::kInStep, true, true},
                           {Moment::kBetweenSteps, true, true},
                           {Moment::kBetweenSteps, true, false},
                           {Moment::kAfterStep, true, false},
                           {Moment::kInPass, false, false},
                           {Moment::kBetweenSteps, false, false}}) {
    const Folder folder;
    KeepPlan plan = plan_on(folder);
    plan.own_rule = true;
    plan.in_backward = in_backward;
    plan.two_optimizers = true;
    plan.shard = each.shard;
    plan.shard_second = each.shard_second;
    plan.keep_every = each.shard ? 2 : 1'000;
    plan.averages = true;
    plan.deaths = {{1, 6, each.moment}};
    train(plan);
  }
}

ddp_case_of(two_optimizers_go_back_together(false));
ddp_case_of(two_optimizers_go_back_together(true));
