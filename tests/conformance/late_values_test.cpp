// SPDX-License-Identifier: Apache-2.0
// Values that come after their step have the bits of the ordinary path, on every path. What reads values waits by itself:
// one rank makes its step only when the others have seen that their values have not come. A rank that dies in a gather
// breaks the group.
#include "conformance/step_bits.hpp"
#include "support/check.hpp"

Ways late_ways() {
  Ways ways = way_of(kShard);
  ways.late_values = true;
  return ways;
}

/// The values after each step; in step 2 no rank uses two parameters.
BitRow late_row(const char* name, const Paths& paths, const Change& change,
                const std::vector<Rule>& rules = {Rule::kMomentum, Rule::kAdamW}, const std::vector<int>& sizes = {3}) {
  return {.name = name,
          .paths = paths,
          .sizes = sizes,
          .rules = rules,
          .change = [change](Ways& ways) { ways = late_ways(), change(ways); },
          .reference = [](Ways& ways) { ways.shard = ways.late_values = ways.own_values = ways.values_in_group = false; },
          .mask = 0,
          .training = {.slow = -1, .reads = true}};
}

ddp_bit_rows(late_row("late values have the bits of the ordinary step", kEveryHostPath, [](Ways&) {},
                      {Rule::kMomentum, Rule::kAdamW}, {1, 2, 3, 4}),
             late_row("that libddp keeps", kEveryHostPath, [](Ways& ways) { ways.own_values = true; }),
             late_row("in library memory", kEveryHostPath, [](Ways& ways) { ways.values_in_group = true; }),
             late_row("with a thread and private gradients", kThreePaths,
                      [](Ways& ways) { ways.progress = DDP_PROGRESS_THREAD, ways.owned_grads = false; }),
             late_row("with master weights and clipping", kThreePaths,
                      [](Ways& ways) { ways.dtype = DDP_BF16, ways.master_weights = true, ways.max_norm = 3; }),
             late_row("with a rule of the program", kThreePaths, [](Ways& ways) { ways.custom = true; }, {Rule::kLion}),
             late_row("with one of whole tensors", kThreePaths, [](Ways& ways) { ways.custom = ways.whole_tensors = true; },
                      {Rule::kLion}));

/// Rank 1 makes its step once the others know that their values have not come.
template <class Read>
void step_late(group::Group& group, Training& world, const Read& read) {
  const bool waits = group.size() > 1;
  if (group.rank() == 1) group.barrier();
  world.optimizer->step();
  if (group.rank() != 1) {
    expect(model::value_is_ready(*world.model, 0) != waits, "rank 1 has not given its values");
    group.barrier();
  }
  read();
}

/// What a read gives behind an ordinary step and behind a late one.
template <class Read>
void expect_that_it_waits(Path path, const Read& read) {
  run_on(path, 3, [&](group::Group& group, int rank) {
    std::vector<std::string> found;
    for (const bool late : {false, true}) {
      Ways ways = late_ways();
      ways.late_values = late;
      Training world(group, Rule::kAdamW, ways);
      for (int step = 0; step < 3; ++step) {
        world.pass(rank, step);
        const auto reads = [&] { found.push_back(read(group, world)); };
        late ? step_late(group, world, reads) : (world.optimizer->step(), reads());
      }
    }
    for (size_t step = 0; step < 3; ++step)
      expect(found[step] == found[step + 3], "what it reads, step " + std::to_string(step));
  });
}

ddp_case_on(kThreePaths, a_hash_waits) {
  expect_that_it_waits(path, [](group::Group&, Training& world) { return std::to_string(world.model->replicas().hash()); });
}
ddp_case_on(kThreePaths, a_check_of_replicas_waits) {
  expect_that_it_waits(path, [](group::Group&, Training& world) {
    world.model->replicas().check(nullptr);
    return world.bytes();
  });
}
ddp_case_on(kThreePaths, averages_wait) {
  expect_that_it_waits(path, [](group::Group&, Training& world) {
    optim::Ema ema(world.model, {0.5});
    ema.update(nullptr);
    ema.swap(0, nullptr);
    std::string bytes = world.bytes();
    ema.swap(0, nullptr);
    return bytes;
  });
}
ddp_case_on(kThreePaths, the_next_pass_waits) {
  expect_that_it_waits(path, [](group::Group& group, Training& world) {
    world.pass(group.rank(), 100);
    std::string bytes = world.bytes();
    world.optimizer->step();
    return bytes;
  });
}

checkpoint::Parts parts_of(Training& world) { return {*world.model, checkpoint::Optimizers({world.optimizer.get()})}; }

ddp_case_on(kThreePaths, a_save_waits) {
  expect_that_it_waits(path, [](group::Group&, Training& world) { return saved_bytes(parts_of(world)); });
}

ddp_ranks_case_on(kThreePaths, run_on, a_load_waits_and_is_not_overwritten, 3) {
  Training world(group, Rule::kAdamW, late_ways());
  world.train(rank, 0);
  const std::string file = saved_bytes(parts_of(world));
  const std::string then = world.bytes();
  world.pass(rank, 1);
  step_late(group, world, [&] { load_bytes(parts_of(world), file); });
  expect(world.bytes() == then, "the values of the file");
  expect_same_everywhere(group, world.bytes(), "the model");
}

/// The optimizer and the model go while values are still to come: memory is not touched afterwards.
ddp_ranks_case_on(kThreePaths, run_on, what_is_destroyed_waits, 3) {
  Training ordinary(group, Rule::kAdamW, way_of(kShard));
  Training world(group, Rule::kAdamW, late_ways());
  for (Training* const each : {&ordinary, &world}) each->pass(rank, 0);
  ordinary.optimizer->step();
  step_late(group, world, [&] {
    world.optimizer.reset();
    world.model->close();
  });
  expect(world.bytes() == ordinary.bytes(), "all values have come");
}

ddp_ranks_case_on(kThreePaths, run_on, a_void_pass_leaves_the_values, 3) {
  Ways ways = late_ways();
  ways.unused = DDP_UNUSED_ERROR;
  Training world(group, Rule::kAdamW, ways), other(group, Rule::kAdamW, ways);
  expect_no_trace(world, other, [&](int step) { expect_void_pass(world, step); });
}

/// A rule that fails on one rank: nothing was given, and the next step is right.
ddp_ranks_case_on(kThreePaths, run_on, a_rule_that_fails_gives_nothing, 3) {
  Ways ways = late_ways();
  ways.custom = true;
  Training world(group, Rule::kMomentum, ways);
  world.train(rank, 0);
  const std::string before = values_as_they_come(world);
  world.pass(rank, 1);
  if (rank == 1) world.own.fails_at = world.own.calls.load();
  static_cast<void>(expect_error(DDP_ERROR_CALLBACK, [&] { world.optimizer->step(); }));
  expect(values_as_they_come(world) == before, "the values of before");
  world.own.fails_at = -1;
  world.train(rank, 2);
  expect_same_everywhere(group, values_as_they_come(world), "the model");
}

/// Two models whose gathers share the lane, and an optimizer that is not sharded.
ddp_ranks_case_on(kThreePaths, run_on, several_optimizers_and_models_are_in_no_way_of_each_other, 3) {
  Ways ways;
  ways.steppers = {{Rule::kMomentum, {1, 3, 6}}, {Rule::kAdamW}};
  Training apart(group, ways);
  ways.steppers[0].shard = ways.steppers[0].late_values = true;
  Training world(group, ways);
  Training second(group, Rule::kAdamW, late_ways());
  Training second_apart(group, Rule::kAdamW, way_of(kShard));
  for (int step = 0; step < 4; ++step) {
    apart.train(rank, step);
    second_apart.train(rank, step);
    world.train(rank, step);
    second.pass(rank, step);  // while the values of the first model come
    second.optimizer->step();
    rank == 1 ? model::wait_values(*second.model) : model::wait_values(*world.model);
    model::wait_values(*world.model);
    model::wait_values(*second.model);
    expect(world.bytes() == apart.bytes(), "the first model, step " + std::to_string(step));
    expect(second.bytes() == second_apart.bytes(), "the second model, step " + std::to_string(step));
  }
}

/// The step of an optimizer does not wait for the values of another one.
ddp_ranks_case_on(kThreePaths, run_on, steps_wait_for_their_own_values_alone, 2) {
  Ways ways;
  ways.steppers = {{Rule::kMomentum, {1, 3, 6}}, {Rule::kAdamW}};
  ways.steppers[0].shard = ways.steppers[0].late_values = true;
  Training world(group, ways);
  for (int step = 0; step < 3; ++step) {
    world.pass(rank, step);
    if (rank == 1) group.barrier();
    world.step();
    if (rank == 0) expect(!model::value_is_ready(*world.model, 1), "rank 1 has not given its values");
    expect(model::value_is_ready(*world.model, 0), "what the other optimizer has changed is there");
    if (rank == 0) group.barrier();
    model::wait_values(*world.model);
    expect_same_everywhere(group, world.bytes(), "the model");
  }
}

ddp_case_on(kThreePaths, a_death_in_a_gather_breaks_the_group) {
  expect_death_of_rank_1(path, 3, [](group::Group& group, int rank, const Folder& folder) {
    Training world(group, Rule::kAdamW, late_ways());
    for (int step = 0; step < 3; ++step) {
      world.train(rank, step);
      model::wait_values(*world.model);
    }
    world.pass(rank, 3);
    if (rank != 1) world.optimizer->step();  // does not wait
    group.barrier();
    // The barrier, which a death also ends.
    const auto left = [&](int who) { return folder.path() + "/left-" + std::to_string(who); };
    std::ofstream(left(rank)).close();
    if (rank == 1) {
      wait_until([&] { return std::filesystem::exists(left(0)) && std::filesystem::exists(left(2)); });
      (void)raise(SIGKILL);
    }
    const std::string text = expect_error(DDP_ERROR_PEER_FAILED, [&] { model::wait_value(*world.model, 0); });
    model::end_values(*world.model);
    expect(!world.model->values().is_whole(), "the parameters are changed in part");
    return text;
  });
}
