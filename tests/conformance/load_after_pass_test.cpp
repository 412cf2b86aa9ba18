// SPDX-License-Identifier: Apache-2.0
// A load between a pass and its step: afterwards everything is as in a new process that loads the same file, whatever the
// optimizer's way of stepping, and the step that the pass may have made is forgotten.
#include "conformance/powersgd_world.hpp"
#include "conformance/step_bits.hpp"
#include "support/check.hpp"

struct Trained {
  Training world;
  std::shared_ptr<optim::Ema> ema;
  Trained(group::Group& group, Rule rule, const Ways& ways, bool dynamic_scale = false) : world(group, rule, ways) {
    ema = std::make_shared<optim::Ema>(world.model, std::vector<double>{0.5});
    world.model->replicas().keep_equal(world.optimizer);
    world.model->replicas().keep_equal(ema);
    if (dynamic_scale) world.set_loss_scale(4, 2);
  }
  void step(int rank, int number) {
    world.pass(rank, number, number % 3 == 2 ? std::set<int32_t>{1, 7} : std::set<int32_t>{});
    world.optimizer->step();
    ema->update();
  }
  [[nodiscard]] checkpoint::Parts parts(bool with_optimizer = true) {
    if (!with_optimizer) return {*world.model};
    return {*world.model, world.optimizer.get(), ema.get()};
  }
  /// All contents of a checkpoint, as its bytes; on rank 0.
  [[nodiscard]] std::string saved(bool with_optimizer = true) { return saved_bytes(parts(with_optimizer)); }
  void load(const std::string& bytes, checkpoint::LoadMode mode = {}, bool with_optimizer = true) {
    load_bytes(parts(with_optimizer), bytes, mode);
  }
};

struct Case {
  const char* name;
  Ways ways;
  Rule rule = Rule::kAdamW;
  bool dynamic_scale = false;
};

std::vector<Case> cases_of(int way) {
  std::vector<Case> all;
  const auto add = [&](const char* name, auto change, Rule rule = Rule::kAdamW, bool scale = false) {
    Ways ways = way_of(way);
    change(ways);
    all.push_back({name, ways, rule, scale});
  };
  add("plain", [](Ways&) {});
  add(
      "momentum", [](Ways&) {}, Rule::kMomentum);
  add("without undo", [](Ways& ways) { ways.undo = false; });
  add("clipped by norm", [](Ways& ways) { ways.max_norm = 3; });
  add("clipped by value", [](Ways& ways) { ways.clip_value = 0.01; });
  add(
      "a dynamic scale", [](Ways&) {}, Rule::kAdamW, true);
  add("master weights", [](Ways& ways) { ways.master_weights = true, ways.dtype = DDP_BF16; });
  add("PowerSGD", [](Ways& ways) { ways.hook = extra::powersgd_hook(powersgd_options(1)); });
  return all;
}

std::string name_of(const Case& each) {
  return std::string(each.name) + (each.ways.shard ? ", sharded" : "") + (each.ways.in_backward ? ", in backward" : "");
}

ddp_case(a_load_after_an_unstepped_pass_is_that_of_a_new_process) {
  for (int way = 0; way < 4; ++way)
    run_groups(2, [way](group::Group& group, int rank) {
      for (const Case& each : cases_of(way)) {
        Trained old(group, each.rule, each.ways, each.dynamic_scale);
        for (int step = 0; step < 3; ++step) old.step(rank, step);
        const std::string file = old.saved();
        old.step(rank, 3);
        old.world.pass(rank, 4);
        old.load(file);
        Trained fresh(group, each.rule, each.ways, each.dynamic_scale);
        fresh.load(file);
        const auto compare = [&](const std::string& when) {
          expect(old.world.bytes() == fresh.world.bytes(), name_of(each) + ": the parameters " + when);
          expect_equal(old.world.optimizer->step_count(), fresh.world.optimizer->step_count(),
                       name_of(each) + ": steps " + when);
          expect(old.saved() == fresh.saved(), name_of(each) + ": everything that a file holds, " + when);
        };
        compare("after the load");
        expect(old.saved() == file, name_of(each) + ": the file itself");
        for (int step = 5; step < 8; ++step) {
          old.step(rank, step);
          fresh.step(rank, step);
          compare("after step " + std::to_string(step));
        }
      }
      group.barrier();
    });
}

/// The step that a pass made is in the file that is written before ddp_optimizer_step, with its count.
ddp_ranks_case(run_groups, a_file_written_before_the_step_holds_all_of_it, 2) {
  for (const bool shard : {false, true}) {
    Ways ways = way_of(kInBackward | (shard ? kShard : 0));
    Trained early(group, Rule::kAdamW, ways), late(group, Rule::kAdamW, ways);
    for (int step = 0; step < 3; ++step) {
      early.world.pass(rank, step);
      late.world.pass(rank, step);
      late.world.optimizer->step();
      expect_equal(early.world.optimizer->step_count(), int64_t{step + 1}, "steps");
      expect(early.saved() == late.saved(), "the file before the step is that after it");
      early.world.optimizer->step();
    }
  }
}

ddp_case(a_load_that_fails_forgets_nothing) {
  for (int way = 0; way < 4; ++way)
    run_groups(2, [way](group::Group& group, int rank) {
      for (const Case& each : cases_of(way)) {
        Trained world(group, each.rule, each.ways, each.dynamic_scale),
            plain(group, each.rule, each.ways, each.dynamic_scale);
        std::string file;
        for (int step = 0; step < 2; ++step) {
          world.step(rank, step);
          plain.step(rank, step);
          file = world.saved();
        }
        world.world.pass(rank, 2);
        plain.world.pass(rank, 2);
        if (rank == 0) file.resize(file.size() - 1);
        (void)expect_error(DDP_ERROR_IO, [&] { world.load(file); });
        if (world.world.optimizer->request().in_pass())
          expect_error(DDP_ERROR_INVALID_STATE, [&] { world.world.model->begin_backward(DDP_PASS_REDUCE); },
                       {"ddp_optimizer_step"});
        world.world.optimizer->step();
        plain.world.optimizer->step();
        expect(world.saved() == plain.saved(), name_of(each) + ": as without the load");
        world.world.model->begin_backward(DDP_PASS_REDUCE);
        if (rank == 0) file.push_back('x');
        expect_error(DDP_ERROR_INVALID_STATE, [&] { world.load(file); }, {"a backward pass is open"});
        for (int32_t p = 0; p < world.world.model->table().parameter_count(); ++p) world.world.model->pass().mark_ready(p);
        world.world.model->end_backward();
      }
      group.barrier();
    });
}

/// Values without their master weights: the copies begin anew, also where the old copy would round to the new value.
ddp_ranks_case(run_groups, values_that_are_loaded_alone_have_new_master_weights, 2) {
  for (int way = 0; way < 4; ++way)
    for (const bool partial : {false, true}) {
      Ways ways = way_of(way);
      ways.master_weights = true;
      ways.dtype = DDP_BF16;
      Trained old(group, Rule::kSgd, ways);
      old.world.optimizer->set_rate(1e-4);  // small enough that many values stay what they were
      const std::string file = old.saved(false);
      old.world.pass(rank, 0);
      old.load(file, {partial, false}, partial);
      Trained fresh(group, Rule::kSgd, ways);
      fresh.load(file, {partial, false}, partial);
      fresh.world.optimizer->set_rate(1e-4);
      for (int step = 1; step < 4; ++step)
        for (Trained* each : {&old, &fresh}) {
          each->world.pass(rank, step);
          each->world.optimizer->step();
        }
      expect(old.world.bytes() == fresh.world.bytes(), "the parameters");
      const auto masters = [](Trained& of) {
        std::string all;
        for (const model::StateTensor& each : of.world.optimizer->state_tensors()) {
          const auto at = static_cast<size_t>(of.world.model->group().rank());
          const int64_t count = each.parts.empty() ? each.tensor.count : count_of(each.parts[at]);
          all.append(reinterpret_cast<const char*>(each.tensor.data), static_cast<size_t>(count) * sizeof(float));
        }
        return all;
      };
      expect(masters(old) == masters(fresh), "their master weights");
    }
  group.barrier();
}

ddp_ranks_case(run_groups, a_model_without_its_optimizer_loads_after_a_pass, 2) {
  Trained world(group, Rule::kAdamW, way_of(kInBackward));
  const std::string before = world.world.bytes();
  const std::string file = world.saved(false);
  world.world.pass(rank, 0);
  world.load(file, {}, false);
  expect(world.world.bytes() == before, "the values of the file");
  expect_equal(world.world.optimizer->step_count(), int64_t{1}, "the moments have the step, and so has their count");
  world.world.pass(rank, 1);
  world.world.optimizer->step();
  expect_equal(world.world.optimizer->step_count(), int64_t{2}, "steps");
  world.world.model->replicas().check();
}

/// Without undo a void pass leaves half a step; only a load makes the model usable again.
ddp_ranks_case(run_groups, half_a_step_is_not_trained_on, 2) {
  for (const bool shard : {false, true}) {
    Ways ways = way_of(kInBackward | (shard ? kShard : 0));
    ways.undo = false;
    ways.unused = DDP_UNUSED_ERROR;
    Trained world(group, Rule::kAdamW, ways);
    for (int step = 0; step < 2; ++step) {
      world.world.pass(rank, step);
      world.world.optimizer->step();
    }
    const std::string file = world.saved();
    const std::string before = world.world.bytes();
    expect_void_pass(world.world, 2);
    expect(world.world.bytes() != before, "some buckets were updated");
    expect_error(DDP_ERROR_INVALID_STATE, [&] { world.world.model->begin_backward(DDP_PASS_REDUCE); },
                 {"load a checkpoint"});
    expect_error(DDP_ERROR_INVALID_STATE, [&] { world.world.optimizer->step(); }, {"load a checkpoint"});
    expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)world.saved(); }, {"load a checkpoint"});
    world.load(file, {}, false);
    expect_error(DDP_ERROR_INVALID_STATE, [&] { world.world.model->begin_backward(DDP_PASS_REDUCE); },
                 {"with the optimizer"});
    world.load(file);
    expect(world.world.bytes() == before && world.saved() == file, "the file");
    world.world.pass(rank, 3);
    world.world.optimizer->step();
  }
  group.barrier();
}
