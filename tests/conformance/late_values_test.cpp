// SPDX-License-Identifier: Apache-2.0
// Values that come after their step have the bits of the ordinary path, on every path. What reads values waits by itself:
// one rank makes its step only when the others have seen that their values have not come. A rank that dies in a gather
// breaks the group.
#include "model/late_values.hpp"

#include "checkpoint/state.hpp"
#include "optim/ema.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

constexpr int kSteps = 4;
const auto kParameters = static_cast<int32_t>(kFusedShapes.size());

Ways late_ways() {
  Ways ways;
  ways.shard = true;
  ways.late_values = true;
  return ways;
}

/// A forward of a program: each parameter is waited for before it is read.
std::string read_in_order(Training& world) {
  std::string all;
  for (int32_t p = 0; p < kParameters; ++p) {
    model::wait_value(*world.model, p);
    expect(model::value_is_ready(*world.model, p), "it has come");
    all += world.bytes_of(p);
  }
  return all;
}

/// The values after each step. In step 2 no rank uses two parameters.
std::string train(group::Group& group, Rule rule, const Ways& ways) {
  Training world(group, rule, ways);
  std::string all;
  for (int step = 0; step < kSteps; ++step) {
    world.optimizer->set_rate(0.05 / (1 + step));
    world.pass(group.rank(), step, step == 2 ? std::set<int32_t>{1, 7} : std::set<int32_t>{});
    world.optimizer->step();
    all += read_in_order(world);
  }
  expect_same_everywhere(group, all, "the model");
  return all;
}

void expect_bits(Path path, const std::vector<Rule>& rules, const std::function<void(Ways&)>& change,
                 const std::vector<int>& sizes = {3}) {
  for (const int size : sizes)
    run_on(path, size, [&](group::Group& group, int) {
      for (const Rule rule : rules) {
        Ways late = late_ways();
        change(late);
        Ways ordinary = late;
        ordinary.shard = ordinary.late_values = ordinary.own_values = ordinary.values_in_group = false;
        expect(train(group, rule, late) == train(group, rule, ordinary), "the bits of the ordinary path, rule " +
                                                                             std::to_string(static_cast<int>(rule)) +
                                                                             ", size " + std::to_string(size));
      }
    });
}

const std::vector<Rule> kRules = {Rule::kMomentum, Rule::kAdamW};

ddp_case_on(kEveryHostPath, late_values_have_the_bits_of_the_ordinary_step) {
  expect_bits(path, kRules, [](Ways&) {}, {1, 2, 3, 4});
}
ddp_case_on(kEveryHostPath, in_memory_of_the_library_too) {
  expect_bits(path, kRules, [](Ways& ways) { ways.own_values = true; });
  expect_bits(path, kRules, [](Ways& ways) { ways.values_in_group = true; });
}
ddp_case_on(kThreePaths, with_a_thread_and_private_gradients_too) {
  expect_bits(path, kRules, [](Ways& ways) {
    ways.progress = DDP_PROGRESS_THREAD;
    ways.owned_grads = false;
  });
}
ddp_case_on(kThreePaths, with_master_weights_and_clipping_too) {
  expect_bits(path, kRules, [](Ways& ways) {
    ways.dtype = DDP_BF16;
    ways.master_weights = true;
    ways.max_norm = 3;
  });
}
ddp_case_on(kThreePaths, with_rules_of_the_program_too) {
  for (const bool whole : {false, true})
    expect_bits(path, {Rule::kLion}, [whole](Ways& ways) {
      ways.custom = true;
      ways.whole_tensors = whole;
    });
}

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

std::string save(Training& world) {
  std::string file;
  checkpoint::save_stream(
      "save", parts_of(world), {1, 2},
      [&](const void* data, int64_t bytes) {
        file.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
        return 0;
      },
      std::nullopt);
  return file;
}

ddp_case_on(kThreePaths, a_save_waits) {
  expect_that_it_waits(path, [](group::Group&, Training& world) { return save(world); });
}

ddp_ranks_case_on(kThreePaths, run_on, a_load_waits_and_is_not_overwritten, 3) {
  Training world(group, Rule::kAdamW, late_ways());
  world.train(rank, 0);
  const std::string file = save(world);
  const std::string then = world.bytes();
  world.pass(rank, 1);
  step_late(group, world, [&] {
    size_t at = 0;
    static_cast<void>(checkpoint::load_stream(
        "load", parts_of(world),
        [&](void* data, int64_t bytes) -> int64_t {
          const size_t count = std::min(static_cast<size_t>(bytes), file.size() - at);
          std::memcpy(data, file.data() + at, count);
          at += count;
          return static_cast<int64_t>(count);
        },
        std::nullopt));
  });
  expect(world.bytes() == then, "the values of the file");
  expect_same_everywhere(group, world.bytes(), "the model");
}

/// The optimizer and the model go while values are still to come: memory is not touched afterwards.
ddp_ranks_case_on(kThreePaths, run_on, what_is_destroyed_waits, 3) {
  Training ordinary(group, Rule::kAdamW, [] {
    Ways ways = late_ways();
    ways.late_values = false;
    return ways;
  }());
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
  Training world(group, Rule::kAdamW, ways);
  world.train(rank, 0);
  world.fill(rank, 1);
  static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE,
                                 [&] { world.reduce({}, rank == 1 ? std::set<int32_t>{0} : std::set<int32_t>{}); }));
  Training other(group, Rule::kAdamW, ways);
  other.train(rank, 0);
  for (Training* const each : {&world, &other}) {
    each->train(rank, 2);
  }
  expect(read_in_order(world) == read_in_order(other), "the bits of a run without the void pass");
}

/// A rule that fails on one rank: nothing was given, and the next step is right.
ddp_ranks_case_on(kThreePaths, run_on, a_rule_that_fails_gives_nothing, 3) {
  Ways ways = late_ways();
  ways.custom = true;
  Training world(group, Rule::kMomentum, ways);
  world.train(rank, 0);
  const std::string before = read_in_order(world);
  world.pass(rank, 1);
  if (rank == 1) world.own.fails_at = world.own.calls.load();
  static_cast<void>(expect_error(DDP_ERROR_CALLBACK, [&] { world.optimizer->step(); }));
  expect(read_in_order(world) == before, "the values of before");
  world.own.fails_at = -1;
  world.train(rank, 2);
  expect_same_everywhere(group, read_in_order(world), "the model");
}

/// Two models whose gathers share the lane, and an optimizer that is not sharded.
ddp_ranks_case_on(kThreePaths, run_on, several_optimizers_and_models_are_in_no_way_of_each_other, 3) {
  Ways ways;
  ways.steppers = {{Rule::kMomentum, {1, 3, 6}}, {Rule::kAdamW}};
  Training apart(group, ways);
  ways.steppers[0].shard = ways.steppers[0].late_values = true;
  Training world(group, ways);
  Training second(group, Rule::kAdamW, late_ways());
  Ways plain = late_ways();
  plain.late_values = false;
  Training second_apart(group, Rule::kAdamW, plain);
  for (int step = 0; step < kSteps; ++step) {
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
  if (path == Path::kLocal) return;  // threads do not die alone
  const Folder folder;
  ddp_group_options options = world_options();
  options.backend = path == Path::kShm ? DDP_BACKEND_SHM : DDP_BACKEND_GLOO;
  Procs procs(3, [&](int rank, Reporter&) {
    const auto group = join_process_group(folder, rank, 3, options);
    Training world(*group, Rule::kAdamW, late_ways());
    for (int step = 0; step < 3; ++step) {
      world.train(rank, step);
      model::wait_values(*world.model);
    }
    world.pass(rank, 3);
    if (rank != 1) world.optimizer->step();  // does not wait
    group->barrier();
    // The barrier, which a death also ends.
    const auto left = [&](int who) { return folder.path() + "/left-" + std::to_string(who); };
    std::ofstream(left(rank)).close();
    if (rank == 1) {
      wait_until([&] { return std::filesystem::exists(left(0)) && std::filesystem::exists(left(2)); });
      (void)raise(SIGKILL);
    }
    const std::string text = expect_error(DDP_ERROR_PEER_FAILED, [&] { model::wait_value(*world.model, 0); }, {"rank 1"});
    model::end_values(*world.model);
    expect(!world.model->values().is_whole(), "the parameters are changed in part");
    return text;
  });
  expect_success_of(procs, {0, 2});
}
