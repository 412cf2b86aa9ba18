// SPDX-License-Identifier: Apache-2.0
// Ranks die while a model is building again and after it, and a rank joins then: the others have the bits of models that
// were never reopened.
#include "support/growing.hpp"
#include "support/on_processes.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

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

template <Hosts kHosts>
void a_rank_dies(Moment when, bool shard, bool in_backward, int32_t dies = 2, bool beside = false) {
  if (kHosts != Hosts::kShared && !gloo_is_there()) return;
  const Folder folder;
  GrowingPlan plan;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.backend = options_on(kHosts).backend;
  plan.shard = plan.keeps = shard;
  plan.in_backward = in_backward;
  plan.dies = dies;
  plan.when = when;
  plan.beside = beside;
  Procs procs(plan.ranks, [&](int rank, Reporter&) {
    if (kHosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
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

template <Hosts kHosts>
void a_rank_dies_after_it(void**) {
  a_rank_dies<kHosts>(Moment::kGrown, false, false);
  a_rank_dies<kHosts>(Moment::kGrown, true, true);
  a_rank_dies<kHosts>(Moment::kNever, true, true, -1);
  a_rank_dies<kHosts>(Moment::kGrown, false, true, 0, true);
}

/// No recovery builds the model, and the commit takes the ranks that are left.
template <Hosts kHosts>
void a_rank_dies_while_it_is_building(void**) {
  a_rank_dies<kHosts>(Moment::kBuilding, false, false);
  a_rank_dies<kHosts>(Moment::kBuilding, false, true, 0);
  a_rank_dies<kHosts>(Moment::kBuilding, false, false, 1, true);
}

/// Then the model asks for a checkpoint.
void parts_of_a_dead_rank_are_lost(void**) {
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

template <bool kShard, Joiner kJoiner = Joiner::kPlain>
void a_rank_joins_after_it(void**) {
  const Folder folder;
  GrowingPlan plan;
  plan.several = kJoiner == Joiner::kSeveral || kJoiner == Joiner::kLate;
  plan.beside = kJoiner == Joiner::kBeside;
  plan.late = kJoiner == Joiner::kLate;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.ranks = 2;
  plan.shard = plan.keeps = kShard;
  plan.in_backward = kShard;
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
void a_joiner_makes_its_objects_before_it_reopens(void**) {
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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(a_rank_dies_after_it<Hosts::kShared>),
      ddp_test(a_rank_dies_after_it<Hosts::kGloo>),
      ddp_test(a_rank_dies_after_it<Hosts::kSeveral>),
      ddp_test(a_rank_dies_while_it_is_building<Hosts::kShared>),
      ddp_test(a_rank_dies_while_it_is_building<Hosts::kGloo>),
      ddp_test(parts_of_a_dead_rank_are_lost),
      ddp_test(a_rank_joins_after_it<false>),
      ddp_test(a_rank_joins_after_it<true>),
      ddp_test((a_rank_joins_after_it<false, Joiner::kSeveral>)),
      ddp_test((a_rank_joins_after_it<true, Joiner::kSeveral>)),
      ddp_test((a_rank_joins_after_it<false, Joiner::kLate>)),
      ddp_test((a_rank_joins_after_it<false, Joiner::kBeside>)),
      ddp_test(a_joiner_makes_its_objects_before_it_reopens),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
