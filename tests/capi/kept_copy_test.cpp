// SPDX-License-Identifier: Apache-2.0
// The option keep_copy: ranks of a sharded optimizer die, before, in and after a step and while what they have changed is
// given to the others, and the others go on with the bits of the same steps without shard and without deaths.
#include <algorithm>
#include <cstdio>

#include "support/kept_training.hpp"
#include "support/on_processes.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

using Moment = KeptPlan::Moment;

KeptPlan plan_on(const Folder& folder, int32_t ranks = 4, Hosts hosts = Hosts::kShared) {
  KeptPlan plan;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.ranks = ranks;
  plan.backend = options_on(hosts).backend;
  plan.ranks_a_host = hosts == Hosts::kSeveral ? 2 : 0;
  return plan;
}

/// The survivors tell the same, and so does the replay.
void train(const KeptPlan& plan) {
  Procs procs(plan.ranks, [&](int rank, Reporter&) {
    if (plan.ranks_a_host > 0) setenv("DDP_TEST_HOST", std::to_string(rank / plan.ranks_a_host).c_str(), 1);
    return KeptTraining(plan, rank).run();
  });
  std::string told;
  const std::vector<ProcResult> results = procs.wait(60'000);
  uint64_t living = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const ProcResult& result = results[static_cast<size_t>(rank)];
    bool dies = false;
    for (const KeptPlan::Death& death : plan.deaths) dies = dies || death.id == rank;
    if (dies) {
      expect(result.signal == SIGKILL, "rank " + std::to_string(rank) + " died: " + result.describe());
      continue;
    }
    expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe());
    if (told.empty()) told = result.text;
    expect(result.text == told, "the survivors tell the same: " + result.text + " and " + told);
    living |= uint64_t{1} << rank;
  }
  const std::vector<uint64_t> members = KeptTraining::read_members(told);
  expect(static_cast<int64_t>(members.size()) == plan.steps, "all steps were made: " + told);
  expect(members.back() == living, "the survivors made the last step: " + told);
  Procs replay(1, [&](int, Reporter&) { return KeptTraining(plan, -1).repeat(members); });
  const ProcResult repeated = replay.wait(20'000).front();
  expect(repeated.exit_code == 0 && repeated.text == told, "the replay: " + repeated.describe() + " is " + told);
}

template <Moment kMoment>
void a_rank_dies(void**) {
  const Folder folder;
  KeptPlan plan = plan_on(folder);
  plan.deaths = {{1, 5, kMoment}};
  train(plan);
  const Folder another;
  plan.rendezvous = "file://" + another.path() + "/meet";
  plan.in_backward = true;
  train(plan);
}

/// In the rule's n-th block, when the blocks before it have changed here and may have reached the others.
template <bool kInBackward, bool kOwnValues>
void a_rank_dies_in_the_step(void**) {
  for (const int32_t block : {0, 1, 2}) {
    const Folder folder;
    KeptPlan plan = plan_on(folder);
    plan.own_rule = true;
    plan.in_backward = kInBackward;
    plan.own_values = kOwnValues;
    plan.deaths = {{2, 4, Moment::kInStep, block}};
    train(plan);
  }
}

void rank_0_dies(void**) {
  const Folder folder;
  KeptPlan plan = plan_on(folder);
  plan.own_rule = true;
  plan.deaths = {{0, 7, Moment::kInStep, 1}};
  train(plan);
}

void everything_comes_along(void**) {
  const Folder folder;
  KeptPlan plan = plan_on(folder);
  plan.bfloat = true;
  plan.masters = true;
  plan.averages = true;
  plan.max_norm = 0.5;
  plan.loss_scale = 4;
  plan.deaths = {{3, 9, Moment::kBeforeStep}, {1, 12, Moment::kInPass}};
  train(plan);
}

void one_after_the_other_until_one_is_left(void**) {
  const Folder folder;
  KeptPlan plan = plan_on(folder);
  plan.own_rule = true;
  plan.deaths = {{0, 3, Moment::kInStep, 0}, {2, 6, Moment::kInStep, 1}, {3, 10, Moment::kBeforeStep}};
  train(plan);
}

void two_die_at_once(void**) {
  const Folder folder;
  KeptPlan plan = plan_on(folder, 5);
  plan.own_rule = true;
  plan.in_backward = true;
  plan.deaths = {{1, 5, Moment::kInStep, 0}, {4, 5, Moment::kBeforePass}};
  train(plan);
}

void a_rank_dies_in_the_recovery(void**) {
  for (const int32_t after : {0, 2'000, 6'000, 12'000, 20'000}) {
    const Folder folder;
    KeptPlan plan = plan_on(folder);
    plan.own_rule = true;
    plan.steps = 60;
    plan.deaths = {{2, 3, Moment::kInStep, 1}, {1, 0, Moment::kInRecovery, after}};
    train(plan);
  }
}

template <Hosts kHosts>
void a_rank_dies_among_hosts(void**) {
  if (!gloo_is_there()) return;
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
    KeptPlan plan = plan_on(folder, 4, kHosts);
    plan.own_rule = true;
    plan.in_backward = each.in_backward;
    plan.averages = true;
    plan.deaths = {{2, 6, each.moment, each.block}};
    train(plan);
  }
}

void a_host_dies(void**) {
  if (!gloo_is_there()) return;
  const Folder folder;
  KeptPlan plan = plan_on(folder, 3, Hosts::kSeveral);
  plan.ranks_a_host = 1;
  plan.own_rule = true;
  plan.deaths = {{2, 6, Moment::kInStep, 1}};
  train(plan);
}

/// Two ranks here and one there, which keeps the parts of both.
void a_rank_dies_where_hosts_are_uneven(void**) {
  if (!gloo_is_there()) return;
  for (const int32_t victim : {0, 1, 2}) {
    const Folder folder;
    KeptPlan plan = plan_on(folder, 3, Hosts::kSeveral);
    plan.own_rule = true;
    plan.deaths = {{victim, 6, Moment::kInStep, 1}};
    train(plan);
  }
}

/// Of three ranks on one host the third has no link to another host, over which only the two of the other one have some;
/// over sockets alone three ranks have two to keep their parts. The smaller host dies as a whole: the ranks of the larger
/// one are more than half.
template <Hosts kHosts>
void a_host_dies_where_hosts_are_uneven(void**) {
  if (!gloo_is_there()) return;
  const Folder folder;
  KeptPlan plan = plan_on(folder, 5, kHosts);
  plan.ranks_a_host = 3;
  plan.own_rule = true;
  plan.averages = true;
  plan.deaths = {{3, 6, Moment::kInStep, 1}, {4, 6, Moment::kInStep, 1}};
  train(plan);
}

/// Where one of them comes to die only when the others have got over the death of the first, nothing is lost, and it is
/// tried again.
void a_rank_and_its_keeper_die(void**) {
  if (!gloo_is_there()) return;
  constexpr int kTries = 5;
  for (int tries = 0; tries < kTries; ++tries) {
    const Folder folder;
    KeptPlan plan = plan_on(folder, 5, Hosts::kGloo);
    plan.own_rule = true;
    plan.deaths = {{1, 6, Moment::kInPass}, {2, 6, Moment::kInPass}};
    Procs procs(plan.ranks, [&](int rank, Reporter&) { return KeptTraining(plan, rank).run(); });
    const std::vector<ProcResult> results = procs.wait(60'000);
    if (results[0].text.find("INVALID_STATE") == std::string::npos) {
      const std::vector<uint64_t> members = KeptTraining::read_members(results[0].text);
      const bool one_alone = std::count(members.begin(), members.end(), 0b11011U) > 0 ||
                             std::count(members.begin(), members.end(), 0b11101U) > 0;
      expect(one_alone, "a step was made without one of the two alone: " + results[0].text);
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

void without_a_copy_a_checkpoint_is_asked_for(void**) {
  const Folder folder;
  KeptPlan plan = plan_on(folder, 3);
  plan.keep_copy = false;
  plan.deaths = {{1, 5, Moment::kBeforePass}};
  Procs procs(plan.ranks, [&](int rank, Reporter&) { return KeptTraining(plan, rank).run(); });
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (const int rank : {0, 2}) {
    const std::string& text = results[static_cast<size_t>(rank)].text;
    expect_contains(text, "INVALID_STATE");
    expect_contains(text, "load a checkpoint with the optimizer");
    // Where the death broke off the step of all that are left, that comes first.
    expect(text.find("keep_copy") != std::string::npos || text.find("has changed only a part") != std::string::npos, text);
  }
}

void it_is_refused_where_it_means_nothing(void**) {
  const Folder folder;
  const auto create = [](int32_t recoverable, int32_t shard, int32_t keep_copy) {
    ddp_group_options options;
    ddp_group* group = nullptr;
    ddp_model* model = nullptr;
    ddp_optimizer* optimizer = nullptr;
    ddp_optimizer_options shared;
    if (ddp_group_options_init(&options, sizeof options) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
    options.rank = 0;
    options.world_size = 1;
    options.recoverable = recoverable;
    const Folder place;
    const ddp_status made = ddp_group_create(("file://" + place.path() + "/meet").c_str(), &options, &group);
    expect(made == DDP_OK && ddp_model_create(group, nullptr, &model) == DDP_OK, "a model");
    expect(ddp_optimizer_options_init(&shared, sizeof shared) == DDP_OK, "options");
    expect(shared.keep_copy == 0, "the default");
    shared.shard = shard;
    shared.keep_copy = keep_copy;
    const ddp_status status = ddp_optimizer_create_adam(model, nullptr, &shared, &optimizer);
    const std::string text = status == DDP_OK ? "" : ddp_last_error();
    ddp_optimizer_destroy(optimizer);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
    expect(status == DDP_OK || status == DDP_ERROR_INVALID_ARGUMENT, "the status of: " + text);
    return text;
  };
  expect_equal(create(1, 1, 1), std::string(), "with both");
  expect_contains(create(0, 1, 1), "recoverable");
  expect_contains(create(1, 0, 1), "shard");
  expect_contains(create(1, 1, 2), "keep_copy");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(a_rank_dies<Moment::kBeforePass>),
      ddp_test(a_rank_dies<Moment::kInPass>),
      ddp_test(a_rank_dies<Moment::kBeforeStep>),
      ddp_test(a_rank_dies<Moment::kAfterStep>),
      ddp_test((a_rank_dies_in_the_step<false, false>)),
      ddp_test((a_rank_dies_in_the_step<true, false>)),
      ddp_test((a_rank_dies_in_the_step<true, true>)),
      ddp_test(rank_0_dies),
      ddp_test(everything_comes_along),
      ddp_test(one_after_the_other_until_one_is_left),
      ddp_test(two_die_at_once),
      ddp_test(a_rank_dies_in_the_recovery),
      ddp_test(a_rank_dies_among_hosts<Hosts::kGloo>),
      ddp_test(a_rank_dies_among_hosts<Hosts::kSeveral>),
      ddp_test(a_host_dies),
      ddp_test(a_rank_dies_where_hosts_are_uneven),
      ddp_test(a_host_dies_where_hosts_are_uneven<Hosts::kSeveral>),
      ddp_test(a_host_dies_where_hosts_are_uneven<Hosts::kGloo>),
      ddp_test(a_rank_and_its_keeper_die),
      ddp_test(without_a_copy_a_checkpoint_is_asked_for),
      ddp_test(it_is_refused_where_it_means_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
