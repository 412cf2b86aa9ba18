// SPDX-License-Identifier: Apache-2.0
// Ranks die while a model is building again and after it, and a rank joins then: the others have the bits of models that
// were never reopened.
#include "support/check.hpp"
#include "support/growing.hpp"
#include "support/on_processes.hpp"

using Moment = GrowingPlan::Moment;

void expect_same(const std::vector<std::string>& told, bool beside = false) {
  std::vector<uint64_t> story;
  for (const std::string& each : told) {
    std::vector<uint64_t> theirs = Growing::read_story(each);
    if (story.empty()) story = theirs;
    expect_equal(theirs.size(), story.size(), "steps");
    for (size_t step = 0; step < story.size(); ++step)
      expect(theirs[step] == story[step] || theirs[step] == 0, "the story of each rank: " + each);
  }
  GrowingPlan plan;
  plan.beside = beside;
  const std::string wanted = Growing(plan, -1).replay(story);
  const auto hashes = [](const std::string& text) { return text.substr(text.find('#')); };
  for (const std::string& each : told) expect(hashes(each) == hashes(wanted), each + " and the replay " + wanted);
}

void a_rank_dies(Hosts hosts, Moment when, bool shard, bool in_backward, int32_t dies = 2, bool beside = false) {
  const Folder folder;
  GrowingPlan plan;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.backend = options_on(hosts).backend;
  plan.shard = plan.keeps = shard;
  plan.in_backward = in_backward;
  plan.dies = dies;
  plan.when = when;
  plan.beside = beside;
  Procs procs(plan.ranks, [&](int rank, Reporter&) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    return Growing(plan, rank).run();
  });
  std::vector<std::string> told;
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (int32_t rank = 0; rank < plan.ranks; ++rank) {
    const ProcResult& result = results[static_cast<size_t>(rank)];
    if (rank == dies) continue;
    expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe() + "\n" + result.said);
    told.push_back(result.text);
  }
  expect_same(told, beside);
}

ddp_case_on_hosts(a_rank_dies_after_it, Hosts::kShared, Hosts::kGloo, Hosts::kSeveral) {
  a_rank_dies(hosts, Moment::kGrown, false, false);
  a_rank_dies(hosts, Moment::kGrown, true, true);
  a_rank_dies(hosts, Moment::kNever, true, true, -1);
  a_rank_dies(hosts, Moment::kGrown, false, true, 0, true);
}

/// No recovery builds the model, and the commit takes the ranks that are left.
ddp_case_on_hosts(a_rank_dies_while_it_is_building, Hosts::kShared, Hosts::kGloo) {
  a_rank_dies(hosts, Moment::kBuilding, false, false);
  a_rank_dies(hosts, Moment::kBuilding, false, true, 0);
  a_rank_dies(hosts, Moment::kBuilding, false, false, 1, true);
}

/// Then the model asks for a checkpoint.
ddp_case(parts_of_a_dead_rank_are_lost) {
  const Folder folder;
  GrowingPlan plan;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.shard = true;
  plan.dies = 1;
  plan.when = Moment::kBuilding;
  Procs procs(plan.ranks, [&](int rank, Reporter&) {
    Growing training(plan, rank);
    training.steps = Growing::kGrows;
    static_cast<void>(training.run());
    training.grow();
    const ddp_status status = ddp_model_begin_backward(training.model(), DDP_PASS_REDUCE);
    return std::string(ddp_status_name(status)) + " " + ddp_last_error();
  });
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (const int rank : {0, 2}) {
    expect(results[static_cast<size_t>(rank)].exit_code == 0, results[static_cast<size_t>(rank)].describe());
    expect_contains(results[static_cast<size_t>(rank)].text, "DDP_ERROR_INVALID_STATE");
    expect_contains(results[static_cast<size_t>(rank)].text, "load a checkpoint with the optimizer");
  }
}

std::vector<std::string> texts_of(Procs& procs, Procs& joined) {
  std::vector<std::string> told;
  std::vector<ProcResult> results = procs.wait(60'000);
  results.push_back(joined.wait(10'000).front());
  for (const ProcResult& result : results) {
    expect(result.exit_code == 0, result.describe() + "\n" + result.said);
    told.push_back(result.text);
  }
  return told;
}

/// It registers what is there, whose indices have gaps on the others.
enum class Joiner { kPlain, kSeveral, kLate, kBeside };  // several optimizers; made behind its commit; a second model

void a_rank_joins_after_it(bool shard, Joiner joiner = Joiner::kPlain) {
  const Folder folder;
  GrowingPlan plan;
  plan.several = joiner == Joiner::kSeveral || joiner == Joiner::kLate;
  plan.beside = joiner == Joiner::kBeside;
  plan.late = joiner == Joiner::kLate;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.ranks = 2;
  plan.shard = plan.keeps = shard;
  plan.in_backward = shard;
  const auto body = [&](int32_t id, Reporter& report, bool joins) {
    Growing training(plan, id, joins);
    training.steps = 60;
    return training.run([&](int64_t step) {
      if (step == Growing::kGrows + 2) report.say("grown");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
  };
  Procs procs(plan.ranks, [&](int rank, Reporter& report) { return body(rank, report, false); });
  procs.wait_for(0, "grown");
  Procs more(1, [&](int, Reporter& report) { return body(2, report, true); });
  const std::vector<std::string> told = texts_of(procs, more);
  expect_same(told, plan.beside);
  expect(Growing::read_story(told.front()).back() == 0b111, "all three made the last step: " + told.front());
}

/// Its state, which it has not taken yet, is that of the model before.
ddp_case(a_joiner_makes_its_objects_before_it_reopens) {
  const Folder folder;
  GrowingPlan plan;
  plan.late = true;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.ranks = 2;
  const auto refused = [](Growing& training) {
    expect(ddp_model_reopen(training.model(), nullptr) == DDP_ERROR_INVALID_STATE, "it is refused everywhere");
    expect_contains(ddp_last_error(), "has joined and has not made all optimizers and averages");
  };
  Procs procs(plan.ranks, [&](int rank, Reporter& report) {
    Growing training(plan, rank);
    training.steps = 60;
    bool met = false;
    return training.run([&](int64_t step) {
      if (step == Growing::kGrows + 2) report.say("grown");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (met || training.group_size() < 3) return;
      met = true;
      refused(training);
      Growing::must(training.learn_members());
    });
  });
  procs.wait_for(0, "grown");
  Procs more(1, [&](int, Reporter&) {
    Growing training(plan, 2, true);
    training.steps = 60;
    training.behind_commit = [&] {
      Growing::must(training.learn_members());
      refused(training);
    };
    return training.run();
  });
  const std::vector<std::string> told = texts_of(procs, more);
  expect_same(told);
}

ddp_case_of(a_rank_joins_after_it(false));
ddp_case_of(a_rank_joins_after_it(true));
ddp_case_of(a_rank_joins_after_it(false, Joiner::kSeveral));
ddp_case_of(a_rank_joins_after_it(true, Joiner::kSeveral));
ddp_case_of(a_rank_joins_after_it(false, Joiner::kLate));
ddp_case_of(a_rank_joins_after_it(false, Joiner::kBeside));
