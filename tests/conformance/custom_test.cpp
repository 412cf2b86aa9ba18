// SPDX-License-Identifier: Apache-2.0
// A rule of the program gives the bits of the built-in rule with the same formula, wherever and however its steps are made;
// its state is saved and sharded as theirs; and a step in which it fails on one rank is taken back on all.

#include "checkpoint/state.hpp"
#include "model/uneven.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

constexpr int kSteps = 3;
constexpr double kScale = 1024;

std::string describe(const Ways& ways, Rule rule) {
  return "rule " + std::to_string(static_cast<int>(rule)) + (ways.shard ? ", shard" : "") +
         (ways.in_backward ? ", in_backward" : "");
}

/// The parameters after some steps; in step 2 no rank uses two parameters. `scale`: of the loss.
std::string train(group::Group& group, Rule rule, const Ways& ways, double scale = 1) {
  Training world(group, rule, ways);
  world.optimizer->set_parameter_options(4, 0.2, 0.5);
  world.optimizer->set_parameter_options(5, 0, 0);
  if (scale != 1) {
    ddp_loss_scale_options options = optim::default_loss_scale_options();
    options.initial = scale;
    options.interval = 0;
    world.optimizer->set_loss_scale(options);
  }
  for (int step = 0; step < kSteps; ++step) {
    world.optimizer->set_rate(0.05 / (1 + step));
    world.pass(group.rank(), step, step == 2 ? std::set<int32_t>{1, 7} : std::set<int32_t>{});
    world.optimizer->step();
  }
  expect_equal(world.optimizer->step_count(), int64_t{kSteps}, "steps");
  expect_same_everywhere(group, world.bytes(), "the model");
  if (ways.whole_tensors) {
    expect(world.own.whole, "slices are whole parameters");
    if (!ways.shard) expect_equal(world.own.largest.load(), int64_t{20'000}, "the largest slice");
  }
  return world.bytes();
}

void expect_bits_of_the_built_in(Path path, const Ways& base, const std::vector<int>& sizes, double scale = 1) {
  for (const int size : sizes)
    run_on(path, size, [&](group::Group& group, int) {
      for (const Rule rule : {Rule::kSgd, Rule::kMomentum, Rule::kAdamW}) {
        Ways built_in = base;
        built_in.custom = built_in.whole_tensors = false;
        const std::string wanted = train(group, rule, built_in, scale);
        for (int way = 0; way < 4; ++way) {
          Ways ways = base;
          ways.custom = true;
          ways.shard = (way & 1) != 0;
          ways.in_backward = (way & 2) != 0;
          expect(train(group, rule, ways, scale) == wanted,
                 "the bits of " + describe(ways, rule) + ", size " + std::to_string(size));
        }
      }
    });
}

ddp_case_on(kThreePaths, a_rule_gives_the_bits_of_the_built_in_one) {
  Ways ways;
  ways.values_in_group = path == Path::kShm;
  expect_bits_of_the_built_in(path, ways, {1, 2, 3, 4});
}

ddp_case_on(kThreePaths, a_lane_and_private_gradients_give_the_same_bits) {
  Ways ways;
  ways.progress = DDP_PROGRESS_THREAD;
  ways.owned_grads = false;
  ways.undo = false;
  expect_bits_of_the_built_in(path, ways, {3});
}

ddp_case_on(kThreePaths, a_rule_sees_clipped_gradients) {
  Ways ways;
  ways.max_norm = 3;
  ways.clip_value = 0.01;
  expect_bits_of_the_built_in(path, ways, {3});
}

ddp_case_on(kThreePaths, a_rule_sees_gradients_without_the_loss_scale) {
  Ways ways;
  ways.nonfinite = DDP_NONFINITE_SKIP;
  expect_bits_of_the_built_in(path, ways, {2}, kScale);
}

ddp_case_on(kThreePaths, sixteen_bits_and_master_weights_have_the_same_bits) {
  for (const bool masters : {false, true}) {
    Ways ways;
    ways.dtype = DDP_BF16;
    ways.master_weights = masters;
    ways.clip_value = masters ? 0.01 : 0;
    expect_bits_of_the_built_in(path, ways, {3});
  }
}

ddp_case_on(kThreePaths, whole_tensors_have_the_same_bits) {
  for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
    Ways ways;
    ways.whole_tensors = true;
    ways.dtype = dtype;
    ways.master_weights = dtype == DDP_BF16;
    ways.clip_value = 0.01;
    expect_bits_of_the_built_in(path, ways, {3});
  }
}

ddp_ranks_case_on(kThreePaths, run_on, rules_that_are_not_built_in_do_not_depend_on_the_way, 3) {
  for (const Rule rule : {Rule::kLion, Rule::kAdagrad}) {
    std::string wanted;
    for (int way = 0; way < 4; ++way) {
      Ways ways;
      ways.custom = true;
      ways.shard = (way & 1) != 0;
      ways.in_backward = (way & 2) != 0;
      ways.max_norm = 2;
      const std::string got = train(group, rule, ways);
      if (way == 0) wanted = got;
      expect(got == wanted, "the bits of " + describe(ways, rule));
    }
  }
}

/// In step 2 the rule fails on one rank, in its second call. Then the step is made again, and nothing is left of the first
/// attempt.
ddp_case_on(kThreePaths, a_failure_on_one_rank_is_that_of_all) {
  for (const auto end : {OwnRule::End::kReturns, OwnRule::End::kThrows})
    for (int way = 1; way < 4; ++way)
      run_on(path, 3, [end, way](group::Group& group, int rank) {
        Ways ways;
        ways.custom = true;
        ways.shard = (way & 1) != 0;
        ways.in_backward = (way & 2) != 0;
        ways.values_in_group = way == 3;
        Training world(group, Rule::kAdamW, ways), other(group, Rule::kAdamW, Ways{});
        for (int step = 0; step < 4; ++step) {
          const std::string before = world.bytes();
          if (step == 2) {
            world.own.end = end;
            if (rank == 1) world.own.fails_at = world.own.calls + 1;
            if (!ways.in_backward) world.pass(rank, step);
            expect_error(DDP_ERROR_CALLBACK, [&] { ways.in_backward ? world.pass(rank, step) : world.optimizer->step(); },
                         {"rank 1", end == OwnRule::End::kReturns ? "returned 42" : "the rule gives up",
                          ways.in_backward ? "ddp_model_end_backward: " : "ddp_optimizer_step: "});
            expect(world.bytes() == before, "parameters as before the step, way " + std::to_string(way));
            expect_equal(world.optimizer->step_count(), int64_t{2}, "steps");
          }
          world.train(rank, step);
          other.train(rank, step);
          expect(world.bytes() == other.bytes(), "state is as before the failure too, way " + std::to_string(way));
        }
      });
}

ddp_case_on(kThreePaths, a_failure_without_undo_ends_the_training_until_a_load) {
  for (const bool shard : {false, true})
    run_on(path, 2, [shard](group::Group& group, int rank) {
      Ways ways;
      ways.custom = true;
      ways.shard = shard;
      ways.in_backward = true;
      ways.undo = false;
      Training world(group, Rule::kMomentum, ways);
      world.train(rank, 0);
      if (rank == 0) world.own.fails_at = world.own.calls + 1;
      (void)expect_error(DDP_ERROR_CALLBACK, [&] { world.pass(rank, 1); });
      expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->begin_backward(DDP_PASS_REDUCE); }, {"load a checkpoint"});
    });
}

/// A step that no other rank takes part in fails alone.
ddp_ranks_case_on(kThreePaths, run_on, a_replicated_step_fails_on_its_rank_alone, 2) {
  Ways ways;
  ways.custom = true;
  Training world(group, Rule::kMomentum, ways);
  world.pass(rank, 0);
  const std::string before = world.bytes();
  if (rank == 1) {
    world.own.fails_at = 3;
    expect_error(DDP_ERROR_CALLBACK, [&] { world.optimizer->step(); },
                 {"ddp_optimizer_step: the update of parameter \"p3\" (index 3, elements 0 to 1023) returned 42"});
    expect(world.bytes() == before, "nothing has changed");
    expect_equal(world.own.calls.load(), 4, "calls");
  }
  world.optimizer->step();
  expect_same_everywhere(group, world.bytes(), "the model");
}

ddp_case_on(kThreePaths, a_void_pass_is_taken_back) {
  for (const bool shard : {false, true})
    run_on(path, 3, [shard](group::Group& group, int rank) {
      Ways ways;
      ways.custom = true;
      ways.in_backward = true;
      ways.shard = shard;
      ways.unused = DDP_UNUSED_ERROR;
      Training world(group, Rule::kAdamW, ways);
      for (int step = 0; step < 3; ++step) {
        const std::string before = world.bytes();
        world.fill(rank, step);
        if (step == 1) {
          if (rank == 2) world.own.fails_at = world.own.calls + 1;  // a rule that fails in a pass that is void anyway
          expect_error(DDP_ERROR_INVALID_STATE,
                       [&] { world.reduce({}, rank == 1 ? std::set<int32_t>{0} : std::set<int32_t>{}); },
                       {"rank 1 did not mark \"p0\""});
          expect(world.bytes() == before, "the parameters are as before the pass");
          world.own.fails_at = -1;
          continue;
        }
        world.reduce();
        world.optimizer->step();
      }
      expect_same_everywhere(group, world.bytes(), "the model");
    });
}

/// Rank 1 has joined when the rule fails on rank 0; it continues to answer.
ddp_ranks_case_on(kThreePaths, run_on, a_joined_rank_hears_of_a_failure, 3) {
  Ways ways;
  ways.custom = true;
  ways.in_backward = true;
  ways.uneven_inputs = 1;
  Training world(group, Rule::kMomentum, ways);
  for (int step = 0; step < (rank == 1 ? 1 : 4); ++step) {
    world.fill(rank, step);
    if (step == 2) {
      if (rank == 0) world.own.fails_at = world.own.calls + 1;
      expect_error(DDP_ERROR_CALLBACK, [&] { world.reduce(); }, {"rank 0"});
      world.fill(rank, step);
    }
    world.reduce();
    world.optimizer->step();
  }
  join(*world.model);
  expect_same_everywhere(group, world.bytes(), "the model");
}

/// Gradients are those of rank 0, so that the mean is the same on any number of ranks.
ddp_case_on(kThreePaths, its_state_is_saved_and_loads_on_any_number_of_ranks) {
  for (const bool masters : {false, true}) {
    const Folder folder;
    const std::string file = folder.path() + "/model";
    const auto ways_of = [&](bool shard, bool whole) {
      Ways ways;
      ways.custom = true;
      ways.shard = ways.in_backward = shard;
      ways.whole_tensors = whole;
      ways.master_weights = masters;
      if (masters) ways.dtype = DDP_BF16;
      return ways;
    };
    const auto write = [&](int size, bool shard, bool whole = false) {
      run_on(path, size, [&](group::Group& group, int) {
        Training world(group, Rule::kAdamW, ways_of(shard, whole));
        for (int step = 0; step < 3; ++step) {
          world.train(0, step);
        }
        checkpoint::save_file("save", {*world.model, world.optimizer.get()}, {3, 7},
                              file + std::to_string(size) +
                                  (whole   ? "w"
                                   : shard ? "s"
                                           : "o"),
                              std::nullopt);
      });
    };
    write(1, false);
    write(4, true);
    write(4, true, true);
    expect(read_file(file + "4s") == read_file(file + "1o"), "the same file, whoever wrote it");
    expect(read_file(file + "4w") == read_file(file + "1o"), "the same file, whoever owns what");
    expect(read_file(file + "1o").find("p6.exp_avg_sq") != std::string::npos, "the names of the state");
    const auto go_on = [&](int size, bool shard, bool whole = false) {
      const std::string result = folder.path() + "/result";
      run_on(path, size, [&](group::Group& group, int rank) {
        Training world(group, Rule::kAdamW, ways_of(shard, whole));
        (void)checkpoint::load_file("load", {*world.model, world.optimizer.get()}, file + "4s", std::nullopt);
        for (int step = 3; step < 5; ++step) {
          world.train(0, step);
        }
        expect_same_everywhere(group, world.bytes(), "the model");
        if (rank == 0) std::ofstream(result, std::ios::binary) << world.bytes();
        Training lion(group, Rule::kLion, ways_of(shard, whole));
        expect_error(DDP_ERROR_MISMATCH,
                     [&] {
                       (void)checkpoint::load_file("load", {*lion.model, lion.optimizer.get()}, file + "4s", std::nullopt);
                     },
                     {"exp_avg"});
      });
      return read_file(result);
    };
    const std::string ordinary = go_on(1, false);
    expect(
        !ordinary.empty() && go_on(2, true) == ordinary && go_on(4, true, true) == ordinary && go_on(4, false) == ordinary,
        "the same bits after loading");
  }
}
