// SPDX-License-Identifier: Apache-2.0
// A rank dies before the values of its step have come (late_values): the others continue from one step, with the bits
// of the same steps without deaths.
#include "support/check.hpp"
#include "support/keep_runs.hpp"

using Moment = KeepPlan::Moment;

/// Behind the step of the rank that dies its gathers have begun, or will in a moment; in the step the others' have.
void a_rank_dies_in_a_gather(Hosts hosts, bool own_values) {
  if (hosts != Hosts::kShared && !gloo_is_there()) return;
  for (const Moment moment : {Moment::kAfterStep, Moment::kInStep, Moment::kBeforePass, Moment::kInKeep})
    for (const int32_t id : {0, 2}) {
      const Folder folder;
      KeepPlan plan = plan_on(folder, 4, hosts);
      plan.own_rule = moment == Moment::kInStep;
      plan.own_values = own_values;
      plan.late_values = true;
      plan.keep_every = 2;
      plan.deaths = {{id, moment == Moment::kInKeep ? 6 : 5, moment,
                      moment == Moment::kInStep   ? 1
                      : moment == Moment::kInKeep ? 10
                                                  : 0}};
      train(plan);
    }
}

keep_case(one_after_the_other, 4) {
  plan.late_values = true;
  plan.averages = true;
  plan.keep_every = 3;
  plan.deaths = {{0, 4, Moment::kAfterStep}, {2, 8, Moment::kAfterStep}, {3, 13, Moment::kAfterStep}};
}

/// Two optimizers, of which one or both give their values late, and a second model.
ddp_case(several_optimizers_go_back_together) {
  for (const bool both : {false, true})
    for (const Moment moment : {Moment::kBetweenSteps, Moment::kAfterStep}) {
      const Folder folder;
      KeepPlan plan = plan_on(folder);
      plan.late_values = true;
      plan.two_optimizers = true;
      plan.two_models = both;
      plan.shard_second = both;
      plan.keep_every = 2;
      plan.deaths = {{1, 7, moment}};
      train(plan);
    }
}

ddp_case_of(a_rank_dies_in_a_gather(Hosts::kShared, false));
ddp_case_of(a_rank_dies_in_a_gather(Hosts::kShared, true));
ddp_case_of(a_rank_dies_in_a_gather(Hosts::kGloo, false));
ddp_case_of(a_rank_dies_in_a_gather(Hosts::kSeveral, false));
