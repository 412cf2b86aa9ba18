// SPDX-License-Identifier: Apache-2.0
// Processes that train as keep_training.hpp says, against a replay of the steps that they have made.
#pragma once

#include "support/keep_training.hpp"
#include "support/on_processes.hpp"

namespace ddp::test {

inline KeepPlan plan_on(const Folder& folder, int32_t ranks = 4, Hosts hosts = Hosts::kShared) {
  KeepPlan plan;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.ranks = ranks;
  plan.backend = options_on(hosts).backend;
  plan.ranks_a_host = hosts == Hosts::kSeveral ? 2 : 0;
  return plan;
}

/// The survivors tell the same, and so does the replay.
inline void expect_replay(const KeepPlan& plan, const std::vector<ProcResult>& results) {
  std::string told;
  uint64_t living = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const ProcResult& result = results[static_cast<size_t>(rank)];
    const KeepPlan::Death* dies = nullptr;
    for (const KeepPlan::Death& death : plan.deaths)
      if (death.id == rank) dies = &death;
    if (dies != nullptr) {
      expect(result.signal == SIGKILL || (dies->at_page() && result.signal == SIGSEGV),
             "rank " + std::to_string(rank) + " died: " + result.describe());
      continue;
    }
    expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe());
    if (told.empty()) told = result.text;
    expect(result.text == told, "the survivors tell the same: " + result.text + " and " + told);
    living |= uint64_t{1} << rank;
  }
  const std::vector<uint64_t> members = KeepTraining::read_members(told);
  expect(static_cast<int64_t>(members.size()) == plan.steps, "all steps were made: " + told);
  expect(members.back() == living, "the survivors made the last step: " + told);
  Procs replay(1, [&](int, Reporter&) { return KeepTraining(plan, -1).repeat(members); });
  const ProcResult repeated = replay.wait(20'000).front();
  expect(repeated.exit_code == 0 && repeated.text == told, "the replay: " + repeated.describe() + " is " + told);
}

inline void train(const KeepPlan& plan) {
  Procs procs(plan.ranks, [&](int rank, Reporter&) {
    if (plan.ranks_a_host > 0) setenv("DDP_TEST_HOST", std::to_string(rank / plan.ranks_a_host).c_str(), 1);
    return KeepTraining(plan, rank).run();
  });
  expect_replay(plan, procs.wait(60'000));
}

inline void train_with(int32_t ranks, void (*change)(KeepPlan&)) {
  const Folder folder;
  KeepPlan plan = plan_on(folder, ranks);
  change(plan);
  train(plan);
}

}  // namespace ddp::test

/// The head of a case that trains by a plan, which it changes: keep_case(rank_0_dies, 4) { plan.deaths = ...; }
#define keep_case(function, ranks)                                                               \
  void function(ddp::test::KeepPlan&);                                                           \
  [[maybe_unused]] const bool function##_is_listed =                                             \
      ddp::test::list_case(__FILE__, #function, [] { ddp::test::train_with(ranks, function); }); \
  void function(ddp::test::KeepPlan& plan)
