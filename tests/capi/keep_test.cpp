// SPDX-License-Identifier: Apache-2.0
// Peer checkpoints: ranks die before, in and after a step, in a keep and in a recovery, and the others continue with the
// bits of the same steps without shard and without deaths.

#include "support/check.hpp"
#include "support/keep_runs.hpp"

using Moment = KeepPlan::Moment;

void a_rank_dies(Moment moment) {
  const Folder folder;
  KeepPlan plan = plan_on(folder);
  plan.deaths = {{1, 5, moment}};
  train(plan);
  const Folder another;
  plan.rendezvous = "file://" + another.path() + "/meet";
  plan.in_backward = true;
  train(plan);
}

/// In the rule's n-th block, when the blocks before it have changed here and may have reached the others.
void a_rank_dies_in_the_step(bool in_backward, bool own_values) {
  for (const int32_t block : {0, 1, 2}) {
    const Folder folder;
    KeepPlan plan = plan_on(folder);
    plan.own_rule = true;
    plan.in_backward = in_backward;
    plan.own_values = own_values;
    plan.deaths = {{2, 4, Moment::kInStep, block}};
    train(plan);
  }
}

keep_case(rank_0_dies, 4) {
  plan.own_rule = true;
  plan.deaths = {{0, 7, Moment::kInStep, 1}};
}

keep_case(everything_comes_along, 4) {
  plan.bfloat = true;
  plan.masters = true;
  plan.averages = true;
  plan.max_norm = 0.5;
  plan.loss_scale = 4;
  plan.deaths = {{3, 9, Moment::kBeforeStep}, {1, 12, Moment::kInPass}};
}

keep_case(one_after_the_other_until_one_is_left, 4) {
  plan.own_rule = true;
  plan.deaths = {{0, 3, Moment::kInStep, 0}, {2, 6, Moment::kInStep, 1}, {3, 10, Moment::kBeforeStep}};
}

keep_case(two_die_at_once, 5) {
  plan.own_rule = true;
  plan.in_backward = true;
  plan.deaths = {{1, 5, Moment::kInStep, 0}, {4, 5, Moment::kBeforePass}};
}

ddp_case(a_rank_dies_in_the_recovery) {
  for (const int32_t after : {0, 2'000, 6'000, 12'000, 20'000}) {
    const Folder folder;
    KeepPlan plan = plan_on(folder);
    plan.own_rule = true;
    plan.steps = 60;
    plan.keep_every = 3;
    plan.deaths = {{2, 4, Moment::kInStep, 1}, {1, 0, Moment::kInRecovery, after}};
    train(plan);
  }
}

/// At every tenth page that a keep reads, and behind its end; of each rank a part of the parameter is kept.
ddp_case_on_hosts(a_rank_dies_in_a_keep, Hosts::kShared, Hosts::kGloo, Hosts::kSeveral) {
  for (int32_t page = 0; page < 70; page += 10) {
    const Folder folder;
    KeepPlan plan = plan_on(folder, 4, hosts);
    plan.in_backward = page % 20 == 0;
    plan.keep_every = 2;
    plan.deaths = {{page / 20, 6, Moment::kInKeep, page}};
    train(plan);
  }
}

/// While the state that was kept comes to another rank, which dies at some page of it.
ddp_case_on_hosts(a_rank_dies_in_a_load, Hosts::kShared, Hosts::kGloo) {
  for (int32_t page = 0; page < 70; page += 10) {
    const Folder folder;
    KeepPlan plan = plan_on(folder, 5, hosts);
    plan.keep_every = 2;
    plan.averages = true;
    const int32_t second = page / 20 == 1 ? 4 : page / 20;  // over sockets the first one's part is with the rank behind it
    plan.deaths = {{2, 5, Moment::kInPass}, {second == 2 ? 0 : second, 0, Moment::kInLoad, page}};
    if (second == 3) continue;
    train(plan);
  }
}

ddp_case(all_go_back_several_steps) {
  for (const int64_t every : {1, 3, 10}) {
    const Folder folder;
    KeepPlan plan = plan_on(folder);
    plan.steps = 25;
    plan.keep_every = every;
    plan.averages = true;
    plan.deaths = {{1, 9, Moment::kAfterStep}, {3, 17, Moment::kBeforeStep}};
    train(plan);
  }
}

/// Both models go back, though only one of them is sharded.
ddp_case(two_models_go_back_together) {
  const Folder folder;
  KeepPlan plan = plan_on(folder);
  plan.two_models = true;
  plan.keep_every = 4;
  plan.deaths = {{1, 6, Moment::kInPass}, {0, 10, Moment::kAfterStep}};
  const std::string log = folder.path() + "/log";
  setenv("DDP_MEMBERSHIP_LOG", log.c_str(), 1);
  train(plan);
  unsetenv("DDP_MEMBERSHIP_LOG");
  std::ifstream lines(log);
  const std::string text(std::istreambuf_iterator<char>(lines), {});
  for (const char* const step : {"\"step\":4,", "\"step\":8,"}) {
    const size_t at = text.find(step);
    expect(at != std::string::npos && text.rfind("\"went back\"", at) > text.rfind('\n', at) + 1,
           std::string("the log tells of ") + step + " " + text);
  }
}

/// The models that are kept have other places among those that live.
keep_case(a_model_that_was_made_before_is_destroyed, 4) {
  plan.earlier_model = true;
  plan.keep_every = 100;  // at the begin alone
  plan.deaths = {{1, 3, Moment::kInPass}};
}

/// Nothing is lost with a rank: all continue from the last step that they have made.
keep_case(replicas_go_on_without_going_back, 4) {
  plan.shard = false;
  plan.keep_every = 1'000;
  plan.averages = true;
  plan.deaths = {{1, 6, Moment::kInPass}};
}

/// A rule of the program that cannot be taken back, cut off within its step on all ranks: no replica is whole.
keep_case(replicas_without_undo_go_back, 4) {
  plan.shard = false;
  plan.undo = false;
  plan.in_backward = true;
  plan.keep_every = 2;
  plan.deaths = {{1, 7, Moment::kInPass}};
}

ddp_case_on_hosts(a_rank_dies_among_hosts, Hosts::kGloo, Hosts::kSeveral) {
  struct Case {
    Moment moment;
    bool in_backward;
    int32_t block = 0;
  };
  // The last two: while values of the pass's first buckets are given.
  for (const Case& each : {Case{Moment::kInPass, true},
                           {Moment::kInStep, false},
                           {Moment::kAfterStep, false},
                           {Moment::kInStep, true},
                           {Moment::kInStep, true, 1}}) {
    const Folder folder;
    KeepPlan plan = plan_on(folder, 4, hosts);
    plan.own_rule = true;
    plan.in_backward = each.in_backward;
    plan.averages = true;
    plan.deaths = {{2, 6, each.moment, each.block}};
    train(plan);
  }
}

ddp_case(a_host_dies) {
  if (!gloo_is_there()) return;
  const Folder folder;
  KeepPlan plan = plan_on(folder, 3, Hosts::kSeveral);
  plan.ranks_a_host = 1;
  plan.own_rule = true;
  plan.deaths = {{2, 6, Moment::kInStep, 1}};
  train(plan);
}

/// Two ranks here and one there, which keeps the parts of both.
ddp_case(a_rank_dies_where_hosts_are_uneven) {
  if (!gloo_is_there()) return;
  for (const int32_t victim : {0, 1, 2}) {
    const Folder folder;
    KeepPlan plan = plan_on(folder, 3, Hosts::kSeveral);
    plan.own_rule = true;
    plan.deaths = {{victim, 6, Moment::kInStep, 1}};
    train(plan);
  }
}

/// Of three ranks on one host the third has no link to another host, over which only the two of the other one have some;
/// over sockets alone three ranks have two to keep their parts. The smaller host dies as a whole: the ranks of the larger
/// one are more than half.
ddp_case_on_hosts(a_host_dies_where_hosts_are_uneven, Hosts::kSeveral, Hosts::kGloo) {
  const Folder folder;
  KeepPlan plan = plan_on(folder, 5, hosts);
  plan.ranks_a_host = 3;
  plan.own_rule = true;
  plan.averages = true;
  plan.deaths = {{3, 6, Moment::kInStep, 1}, {4, 6, Moment::kInStep, 1}};
  train(plan);
}

/// Where one of them comes to die only when the others have got over the death of the first, nothing is lost, and it is
/// tried again.
ddp_case(a_rank_and_its_keeper_die) {
  if (!gloo_is_there()) return;
  constexpr int kTries = 5;
  for (int tries = 0; tries < kTries; ++tries) {
    const Folder folder;
    KeepPlan plan = plan_on(folder, 5, Hosts::kGloo);
    plan.own_rule = true;
    plan.deaths = {{1, 6, Moment::kInPass}, {2, 6, Moment::kInPass}};
    plan.all_is_lost = true;
    Procs procs(plan.ranks, [&](int rank, Reporter&) { return KeepTraining(plan, rank).run(); });
    const std::vector<ProcResult> results = procs.wait(60'000);
    if (results[0].text.find("INVALID_STATE") == std::string::npos) {
      expect_replay(plan, results);
      continue;
    }
    for (const int rank : {0, 3, 4}) {
      const std::string& text = results[static_cast<size_t>(rank)].text;
      expect_contains(text, "INVALID_STATE");
      expect_contains(text, "load a checkpoint");
    }
    return;
  }
  throw Error(DDP_ERROR_INTERNAL, "the two never died together");
}

ddp_case(without_a_keep_a_checkpoint_is_asked_for) {
  const Folder folder;
  KeepPlan plan = plan_on(folder, 3);
  plan.keep_every = 0;
  plan.deaths = {{1, 5, Moment::kBeforePass}};
  Procs procs(plan.ranks, [&](int rank, Reporter&) { return KeepTraining(plan, rank).run(); });
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (const int rank : {0, 2}) {
    const std::string& text = results[static_cast<size_t>(rank)].text;
    expect_contains(text, "INVALID_STATE");
    expect_contains(text, "load a checkpoint with the optimizer");
    // Where the death broke off the step of all that are left, that comes first.
    expect(text.find("ddp_state_keep") != std::string::npos || text.find("has changed only a part") != std::string::npos,
           text);
  }
}

ddp_case_of(a_rank_dies(Moment::kBeforePass));
ddp_case_of(a_rank_dies(Moment::kInPass));
ddp_case_of(a_rank_dies(Moment::kBeforeStep));
ddp_case_of(a_rank_dies(Moment::kAfterStep));
ddp_case_of(a_rank_dies_in_the_step(false, false));
ddp_case_of(a_rank_dies_in_the_step(true, false));
ddp_case_of(a_rank_dies_in_the_step(true, true));
