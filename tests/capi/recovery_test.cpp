// SPDX-License-Identifier: Apache-2.0
// Ranks die and the others continue in their processes: for each rank that dies, over every transport, with every way to
// update, and the weights are those of a replay of who took part in which step.

#include "support/check.hpp"
#include "support/on_processes.hpp"
#include "support/survivor.hpp"

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

Survival plan_on(Hosts hosts, int32_t ranks, Update update, const Folder& folder) {
  Survival plan;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.ranks = ranks;
  plan.update = update;
  plan.backend = options_on(hosts).backend;
  if (ddp_recover_options_init(&plan.rule, sizeof plan.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
  plan.rule.wait_ms = 10'000;
  plan.dead_after_ms = 10'000;  // deaths are seen, and a rank may get no core for a while
  return plan;
}

struct Killing {
  int rank;
  const char* after;  // a line that the rank has sent
  int signal = SIGKILL;
};

/// Trains while ranks are killed. The survivors report the same results, which are those of the replay.
Story train_and_kill(Hosts hosts, const Survival& plan, const std::vector<Killing>& killings) {
  Procs procs(plan.ranks, [&](int rank, Reporter& report) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    return write_story(Survivor(plan, rank, to(report)).run());
  });
  std::vector<bool> dead(static_cast<size_t>(plan.ranks));
  for (const Killing& killing : killings) {
    procs.wait_for(killing.rank, killing.after);
    sleep_ms(7);
    procs.signal(killing.rank, killing.signal);
    dead[static_cast<size_t>(killing.rank)] = true;
  }
  Story told;
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const ProcResult& result = results[static_cast<size_t>(rank)];
    if (dead[static_cast<size_t>(rank)]) continue;
    expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe() + "\n" + result.said);
    const Story story = read_story(result.text);
    expect(static_cast<int64_t>(story.members.size()) == plan.steps, "all steps were made: " + result.text);
    if (told.members.empty()) told = story;
    expect(story.members == told.members && story.hash == told.hash, "the survivors tell the same: " + result.text);
  }
  expect(told.hash == replay(told.members), "the weights are those of the replay: " + write_story(told));
  for (int rank = 0; rank < plan.ranks; ++rank)
    expect(((told.members.back() >> rank & 1) != 0) == !dead[static_cast<size_t>(rank)],
           "the last step was made by the survivors");
  expect(told.members.front() == (uint64_t{1} << plan.ranks) - 1, "the first step was made by all");
  return told;
}

void a_rank_dies(Hosts hosts, Update update) {
  if (hosts != Hosts::kShared && !gloo_is_there()) return;
  const Folder folder;
  train_and_kill(hosts, plan_on(hosts, 4, update, folder), {{2, "step 20"}});
}

ddp_case_on_hosts(rank_0_dies, Hosts::kShared, Hosts::kGloo) {
  const Folder folder;
  train_and_kill(hosts, plan_on(hosts, 4, Update::kSgd, folder), {{0, "step 20"}});
}

ddp_case_on_hosts(one_after_the_other_until_one_is_left, Hosts::kShared) {
  const Folder folder;
  Survival plan = plan_on(hosts, 4, Update::kInBackward, folder);
  plan.steps = 80;
  plan.own_values = true;
  train_and_kill(hosts, plan, {{0, "step 10"}, {3, "step 20"}, {1, "step 30"}});
}

enum class Optimizer { kBeforeCommit, kBehindIt };  // of a rank that joins

/// Two ranks come to three, one after the other, and one of the first ones dies in between.
void ranks_join(Hosts hosts, Update update, Optimizer optimizer = Optimizer::kBeforeCommit) {
  if (hosts != Hosts::kShared && !gloo_is_there()) return;
  const Folder folder;
  Survival plan = plan_on(hosts, 3, update, folder);
  plan.steps = 100;
  plan.late_optimizer = optimizer == Optimizer::kBehindIt;
  plan.keep_every = 4;
  const auto body = [&](int id, Reporter& report, bool joins) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(id / 2).c_str(), 1);
    return write_story(Survivor(plan, id, to(report), joins).run());
  };
  Procs first(3, [&](int rank, Reporter& report) { return body(rank, report, false); });
  first.wait_for(1, "step 10");
  Procs fourth(1, [&](int, Reporter& report) { return body(3, report, true); });
  fourth.wait_for(0, "step");
  first.signal(0, SIGKILL);
  Procs fifth(1, [&](int, Reporter& report) { return body(4, report, true); });
  std::vector<ProcResult> results = first.wait(60'000);
  results.erase(results.begin());
  for (Procs* const more : {&fourth, &fifth}) results.push_back(more->wait(10'000).front());
  Story told;
  for (const ProcResult& result : results) {
    expect(result.exit_code == 0, result.describe() + "\n" + result.said);
    Story story = read_story(result.text);
    if (told.members.empty()) told = story;
    for (size_t step = 0; step < story.members.size() && story.members[step] == 0; ++step)
      story.members[step] = told.members[step];  // before it joined
    expect(story.members == told.members && story.hash == told.hash, "all tell the same: " + result.text);
  }
  expect(told.hash == replay(told.members), "the weights are those of the replay: " + write_story(told));
  expect(told.members.front() == 0b00111 && told.members.back() == 0b11110, "who was there: " + write_story(told));
}

void ok(ddp_status status) {
  if (status != DDP_OK) throw Error(status, ddp_last_error());
}

/// A model of one number, in a group of one that another rank joins.
struct OneNumber : NotCopied {
  OneNumber(const Folder& folder, bool joins, ddp_status (*make)(ddp_model*, ddp_optimizer**)) {
    ddp_group_options options;
    ok(ddp_group_options_init(&options, sizeof options));
    options.rank = joins ? -1 : 0;
    options.world_size = joins ? -1 : 1;
    options.recoverable = 1;
    options.join = joins ? 1 : 0;
    ok(ddp_group_create(("file://" + folder.path() + "/meet").c_str(), &options, &group));
    ddp_model_options of_model;
    ok(ddp_model_options_init(&of_model, sizeof of_model));
    ok(ddp_model_create(group, &of_model, &model));
    ddp_tensor tensor;
    const int64_t one = 1;
    ok(ddp_tensor_init(&tensor, &value, DDP_F32, 1, &one));
    ok(ddp_model_add_parameter(model, "w", &tensor, nullptr, nullptr));
    if (make != nullptr) ok(make(model, &optimizer));
    ok(ddp_model_commit(model, nullptr));
  }
  ~OneNumber() {
    ddp_optimizer_destroy(optimizer);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
  }

  float value = 1;
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* optimizer = nullptr;
};

ddp_status make_sgd(ddp_model* model, ddp_optimizer** optimizer) {
  ddp_sgd_options rule;
  ddp_optimizer_options shared;
  ok(ddp_sgd_options_init(&rule, sizeof rule));
  ok(ddp_optimizer_options_init(&shared, sizeof shared));
  rule.momentum = 0.5;
  return ddp_optimizer_create_sgd(model, &rule, &shared, optimizer);
}

ddp_status make_adam(ddp_model* model, ddp_optimizer** optimizer) {
  ddp_adam_options rule;
  ddp_optimizer_options shared;
  ok(ddp_adam_options_init(&rule, sizeof rule));
  ok(ddp_optimizer_options_init(&shared, sizeof shared));
  return ddp_optimizer_create_adam(model, &rule, &shared, optimizer);
}

/// It gets that error, and the others continue.
ddp_case(a_rank_that_joins_makes_another_optimizer) {
  const Folder folder;
  Procs procs(2, [&](int number, Reporter&) -> std::string {
    if (number == 1) {
      sleep_ms(300);
      OneNumber late(folder, true, nullptr);
      expect(make_adam(late.model, &late.optimizer) == DDP_ERROR_MISMATCH, "refused");
      expect(late.optimizer == nullptr, "no optimizer");
      return ddp_last_error();
    }
    OneNumber first(folder, false, make_sgd);
    while (ddp_model_begin_backward(first.model, DDP_PASS_REDUCE) == DDP_OK) {
      ok(ddp_model_mark_ready(first.model, 0, nullptr));
      ok(ddp_model_end_backward(first.model, nullptr));
      ok(ddp_optimizer_step(first.optimizer, nullptr));
      sleep_ms(5);
    }
    ok(ddp_group_recover(first.group, nullptr, nullptr));
    return "went on";
  });
  const std::vector<ProcResult> results = procs.wait(30'000);
  expect_equal(results[0].text, "went on", results[0].describe());
  for (const char* const part : {"sgd", "adam"}) expect_contains(results[1].text, part);
}

/// What a rank that dies leaves of a step is half a step where nothing is kept to take it back, and half of the state is
/// lost with it where each rank has a part: the ranks report it, and never continue with other weights.
void what_cannot_be_taken_back_is_refused(Update update) {
  const Folder folder;
  Survival plan = plan_on(Hosts::kShared, 3, update, folder);
  plan.pause_ms = 30;
  plan.save_path = folder.path() + "/model";
  plan.save_every = update == Update::kShard ? 5 : 0;
  Procs procs(3, [&](int rank, Reporter& report) { return write_story(Survivor(plan, rank, to(report)).run()); });
  procs.wait_for(2, "step 10");
  sleep_ms(25);
  procs.signal(2, SIGKILL);
  std::vector<ProcResult> results = procs.wait(60'000);
  results.pop_back();
  for (const ProcResult& result : results) {
    if (update == Update::kShard || result.exit_code != 0)
      expect(result.text.find("INVALID_STATE") != std::string::npos &&
                 result.text.find("load a checkpoint") != std::string::npos,
             result.describe() + "\n" + result.said);
    if (update == Update::kShard)
      expect(result.text.find("the newest that this process knows is \"" + plan.save_path + "\"") != std::string::npos,
             result.describe());
    else if (result.exit_code == 0)  // it died between two steps
      expect(read_story(result.text).hash == replay(read_story(result.text).members), result.describe());
  }
}

/// Its part of the optimizer's state is still what all begin with.
void a_part_that_no_step_has_changed_is_not_lost(Update update, State moment) {
  const Folder folder;
  const Survival plan = plan_on(Hosts::kShared, 3, update, folder);
  Procs procs(3, [&](int rank, Reporter& report) {
    Survival mine = plan;
    if (rank == 2)
      mine.enters = [moment](State state) {
        if (state == moment) ::raise(SIGKILL);
      };
    return write_story(Survivor(mine, rank, to(report)).run());
  });
  std::vector<ProcResult> results = procs.wait(60'000);
  results.pop_back();
  for (const ProcResult& result : results) {
    expect(result.exit_code == 0, result.describe() + "\n" + result.said);
    const Story story = read_story(result.text);
    expect(story.members == std::vector<uint64_t>(static_cast<size_t>(plan.steps), 0b11), result.text);
    expect(story.hash == replay(story.members), "the weights of two ranks alone: " + result.text);
  }
}

/// The others may have changed their parts, or have got some of each other's.
ddp_case(a_first_step_that_broke_off_is_right_or_refused) {
  for (const int64_t after_us : {0, 100, 300, 1'000, 2'000}) {
    const Folder folder;
    const Survival plan = plan_on(Hosts::kShared, 3, Update::kShard, folder);
    Procs procs(3, [&](int rank, Reporter& report) {
      Survival mine = plan;
      bool has_begun = false;
      if (rank == 2)
        mine.enters = [&](State state) {
          if (state == State::kStep && !std::exchange(has_begun, true))
            std::thread([after_us] {
              std::this_thread::sleep_for(std::chrono::microseconds(after_us)), ::raise(SIGKILL);
            }).detach();
        };
      return write_story(Survivor(mine, rank, to(report)).run());
    });
    std::vector<ProcResult> results = procs.wait(60'000);
    results.pop_back();
    for (const ProcResult& result : results)
      if (result.exit_code == 0)
        expect(read_story(result.text).hash == replay(read_story(result.text).members), result.describe());
      else
        expect(result.text.find("load a checkpoint") != std::string::npos, result.describe() + "\n" + result.said);
    expect(results[0].exit_code == results[1].exit_code, results[0].describe() + " and " + results[1].describe());
  }
}

ddp_case(two_die_at_once) {
  const Folder folder;
  train_and_kill(Hosts::kShared, plan_on(Hosts::kShared, 4, Update::kSgd, folder), {{0, "step 20"}, {1, "step 20"}});
}

ddp_case_of(a_rank_dies(Hosts::kShared, Update::kSgd));
ddp_case_of(a_rank_dies(Hosts::kShared, Update::kOwn));
ddp_case_of(a_rank_dies(Hosts::kGloo, Update::kInBackward));
ddp_case_of(a_rank_dies(Hosts::kSeveral, Update::kInBackward));
ddp_case_of(what_cannot_be_taken_back_is_refused(Update::kNoUndo));
ddp_case_of(what_cannot_be_taken_back_is_refused(Update::kShard));
ddp_case_of(a_part_that_no_step_has_changed_is_not_lost(Update::kShard, State::kPass));
ddp_case_of(a_part_that_no_step_has_changed_is_not_lost(Update::kKept, State::kKeep));
ddp_case_of(a_part_that_no_step_has_changed_is_not_lost(Update::kKeptInBackward, State::kKeep));
ddp_case_of(ranks_join(Hosts::kShared, Update::kSgd));
ddp_case_of(ranks_join(Hosts::kGloo, Update::kInBackward));
ddp_case_of(ranks_join(Hosts::kSeveral, Update::kSgd));
ddp_case_of(ranks_join(Hosts::kShared, Update::kSgd, Optimizer::kBehindIt));
ddp_case_of(ranks_join(Hosts::kGloo, Update::kInBackward, Optimizer::kBehindIt));
ddp_case_of(ranks_join(Hosts::kShared, Update::kKept));
ddp_case_of(ranks_join(Hosts::kGloo, Update::kKeptInBackward));
ddp_case_of(ranks_join(Hosts::kSeveral, Update::kKept));
