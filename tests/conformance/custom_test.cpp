// SPDX-License-Identifier: Apache-2.0
// A rule of the program gives the bits of the built-in rule with the same formula, wherever and however its steps are made;
// its state is saved and sharded as theirs; and a step in which it fails on one rank is taken back on all.

#include "conformance/step_bits.hpp"
#include "model/uneven.hpp"
#include "support/check.hpp"

BitRow custom_row(const char* name, const std::vector<int>& sizes, const Change& change, const Paths& paths = kThreePaths) {
  return {.name = name,
          .paths = paths,
          .sizes = sizes,
          .rules = {Rule::kSgd, Rule::kMomentum, Rule::kAdamW},
          .change = [change](Ways& ways) { ways.custom = true, change(ways); },
          .reference = [](Ways& ways) { ways.custom = ways.whole_tensors = false; },
          .training = {.frozen = 5}};
}
BitRow scaled_row() {
  BitRow row = custom_row("a rule sees gradients without the loss scale", {2},
                          [](Ways& ways) { ways.nonfinite = DDP_NONFINITE_SKIP; });
  row.training.loss_scale = 1024;
  return row;
}
BitRow own_row() {
  BitRow row =
      custom_row("rules that are not built in do not depend on the way", {3}, [](Ways& ways) { ways.max_norm = 2; });
  row.rules = {Rule::kLion, Rule::kAdagrad};
  row.reference = [](Ways&) {};
  return row;
}
void use_masters(Ways& ways) { ways.dtype = DDP_BF16, ways.master_weights = true, ways.clip_value = 0.01; }

ddp_bit_rows(custom_row("a rule has the bits of the built-in one", {1, 2, 3, 4}, [](Ways&) {}, {Path::kLocal, Path::kGloo}),
             custom_row("in library memory", {1, 2, 3, 4}, [](Ways& ways) { ways.values_in_group = true; }, {Path::kShm}),
             custom_row("a lane and private gradients", {3},
                        [](Ways& ways) { ways.progress = DDP_PROGRESS_THREAD, ways.owned_grads = ways.undo = false; }),
             custom_row("a rule sees clipped gradients", {3}, [](Ways& ways) { ways.max_norm = 3, ways.clip_value = 0.01; }),
             scaled_row(), custom_row("16 bits", {3}, [](Ways& ways) { ways.dtype = DDP_BF16; }),
             custom_row("16 bits and master weights", {3}, use_masters),
             custom_row("whole tensors", {3}, [](Ways& ways) { ways.whole_tensors = true, ways.clip_value = 0.01; }),
             custom_row("whole tensors and master weights", {3},
                        [](Ways& ways) { use_masters(ways), ways.whole_tensors = true; }),
             own_row());

/// In step 2 the rule fails on one rank, in its second call. Then the step is made again, and nothing is left of the first
/// attempt.
ddp_case_on(kThreePaths, a_failure_on_one_rank_is_that_of_all) {
  for (const auto end : {OwnRule::End::kReturns, OwnRule::End::kThrows})
    for (int way = 1; way < 4; ++way)
      run_on(path, 3, [end, way](group::Group& group, int rank) {
        Ways ways = way_of(way);
        ways.custom = true;
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
      Training world(group, Rule::kAdamW, ways), other(group, Rule::kAdamW, ways);
      expect_no_trace(world, other, [&](int step) {
        if (rank == 2) world.own.fails_at = world.own.calls + 1;  // a rule that fails in a pass that is void anyway
        expect_void_pass(world, step);
        world.own.fails_at = -1;
      });
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

ddp_case_on(kThreePaths, its_state_is_saved_and_loads_on_any_number_of_ranks) {
  for (const bool masters : {false, true}) {
    const auto ways_of = [&](bool shard, bool whole) {
      Ways ways;
      ways.custom = true;
      ways.shard = ways.in_backward = shard;
      ways.whole_tensors = whole;
      ways.master_weights = masters;
      if (masters) ways.dtype = DDP_BF16;
      return ways;
    };
    const Ways plain = ways_of(false, false), sharded = ways_of(true, false), whole = ways_of(true, true);
    const std::string file =
        expect_one_file(path, {{1, plain}, {4, whole}, {4, sharded}}, {{1, plain}, {2, sharded}, {4, whole}, {4, plain}});
    expect(file.find("p6.exp_avg_sq") != std::string::npos, "the names of the state");
    run_on(path, 2, [&](group::Group& group, int) {
      Training lion(group, Rule::kLion, sharded);
      expect_error(DDP_ERROR_MISMATCH, [&] { load_bytes({*lion.model, lion.optimizer.get()}, file); }, {"exp_avg"});
    });
  }
}
