// SPDX-License-Identifier: Apache-2.0
// Several models of one group with open passes at the same time, on every transport: each gets its mean whatever order the
// gradients of all of them come in, a void pass of one does not touch the other, and steps have the bits of models that
// train alone.
#include "group/channels.hpp"

#include "conformance/pass_world.hpp"
#include "conformance/step_bits.hpp"
#include "support/check.hpp"

ddp_model_options options_with(ddp_progress progress) {
  ddp_model_options options = model_options();
  options.progress = progress;
  return options;
}

/// All marks of all models, in an order that depends on the rank.
std::vector<std::pair<size_t, int32_t>> marks_of(size_t models, int rank, int pass) {
  std::vector<std::pair<size_t, int32_t>> marks;
  for (size_t m = 0; m < models; ++m)
    for (size_t p = 0; p < kShapes.size(); ++p) marks.emplace_back(m, static_cast<int32_t>(p));
  std::mt19937 random(static_cast<unsigned>(rank * 131 + pass));
  std::shuffle(marks.begin(), marks.end(), random);
  return marks;
}

/// Each model has gradients of its own.
constexpr int kApart = 100;

void mark_all(PassWorld& world, int rank, int pass) {
  world.fill(rank, pass);
  for (size_t p = kShapes.size(); p-- > 0;) world.model->pass().mark_ready(static_cast<int32_t>(p));
}

ddp_case_on(kEveryHostPath, passes_open_together_give_each_its_mean) {
  for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
    for (const int size : {1, 2, 3, 5})
      run_on(path, size, [&](group::Group& group, int rank) {
        PassWorld first(group, Memory::kOwned, options_with(progress));
        PassWorld second(group, Memory::kPrivate, options_with(progress));
        PassWorld third(group, Memory::kMixed, options_with(progress));
        const std::vector<PassWorld*> worlds = {&first, &second, &third};
        for (int pass = 0; pass < 5; ++pass) {
          std::vector<size_t> ends = {0, 1, 2};
          std::shuffle(ends.begin(), ends.end(), std::mt19937(static_cast<unsigned>(pass)));
          for (PassWorld* const world : worlds) world->model->begin_backward(DDP_PASS_REDUCE);
          for (const auto& [m, p] : marks_of(worlds.size(), rank, pass)) {
            worlds[m]->fill(rank, pass + kApart * static_cast<int>(m), static_cast<size_t>(p));
            worlds[m]->model->pass().mark_ready(p);
          }
          for (const size_t m : ends) {
            worlds[m]->model->end_backward();
            worlds[m]->expect_mean(size, pass + kApart * static_cast<int>(m), "model " + std::to_string(m));
          }
          group.barrier();
        }
      });
}

ddp_ranks_case_on(kEveryHostPath, run_on, a_model_inside_a_model, 2, 3) {
  PassWorld outer(group, Memory::kOwned), inner(group, Memory::kGroup);
  for (int pass = 0; pass < 4; ++pass) {
    outer.fill(rank, pass);
    outer.model->begin_backward(DDP_PASS_REDUCE);
    for (int32_t p = 7; p > 3; --p) outer.model->pass().mark_ready(p);
    inner.run(rank, kApart + pass);
    inner.expect_mean(group.size(), kApart + pass, "the inner model");
    for (int32_t p = 3; p >= 0; --p) outer.model->pass().mark_ready(p);
    outer.model->end_backward();
    outer.expect_mean(group.size(), pass, "the outer model");
  }
}

// This is not promised, but a rank that waits for one pass also works on the other.
ddp_ranks_case_on(kEveryHostPath, run_on, passes_that_end_in_other_orders_help_each_other, 3) {
  PassWorld first(group, Memory::kOwned, options_with(DDP_PROGRESS_CALLER));
  PassWorld second(group, Memory::kPrivate, options_with(DDP_PROGRESS_CALLER));
  for (int pass = 0; pass < 4; ++pass) {
    first.model->begin_backward(DDP_PASS_REDUCE);
    second.model->begin_backward(DDP_PASS_REDUCE);
    mark_all(first, rank, pass);
    mark_all(second, rank, kApart + pass);
    (rank == 0 ? first : second).model->end_backward();
    (rank == 0 ? second : first).model->end_backward();
    first.expect_mean(3, pass, "the first model");
    second.expect_mean(3, kApart + pass, "the second model");
    group.barrier();
  }
}

ddp_ranks_case_on(kEveryHostPath, run_on, a_void_pass_leaves_the_other_alone, 3) {
  PassWorld first(group, Memory::kOwned), second(group, Memory::kPrivate);
  for (int pass = 0; pass < 3; ++pass) {
    first.model->begin_backward(DDP_PASS_REDUCE);
    second.model->begin_backward(DDP_PASS_REDUCE);
    mark_all(second, rank, kApart + pass);
    first.fill(rank, pass);
    for (int32_t p = 7; p >= (rank == 1 ? 2 : 0); --p) first.model->pass().mark_ready(p);
    expect_error(DDP_ERROR_INVALID_STATE, [&] { first.model->end_backward(); }, {"rank 1"});
    second.model->end_backward();
    second.expect_mean(3, kApart + pass, "the other model");
    first.run(rank, pass);
    first.expect_mean(3, pass, "the same model again");
  }
}

/// Two models with optimizers that step within passes that are open together; or one after the other.
std::string train(group::Group& group, const Ways& ways, bool together) {
  Training first(group, Rule::kAdamW, ways), second(group, Rule::kMomentum, ways);
  for (int step = 0; step < 3; ++step) {
    const auto begin = [&](Training& world, int at) {
      world.fill(group.rank(), at);
      world.model->begin_backward(DDP_PASS_REDUCE);
    };
    const auto mark = [](Training& world) {
      for (size_t p = kFusedShapes.size(); p-- > 0;) world.model->pass().mark_ready(static_cast<int32_t>(p));
    };
    begin(first, step);
    if (together) begin(second, kApart + step);
    mark(first);
    if (together) mark(second);
    first.model->end_backward();
    if (!together) begin(second, kApart + step);
    if (!together) mark(second);
    second.model->end_backward();
    first.optimizer->step();
    second.optimizer->step();
  }
  expect_same_everywhere(group, first.bytes() + second.bytes(), "the models");
  return first.bytes() + second.bytes();
}

ddp_ranks_case_on(kEveryHostPath, run_on, steps_have_the_bits_of_models_that_train_alone, 2, 3) {
  for (int way = 0; way < 8; ++way) {
    Ways ways = way_of(way);
    ways.max_norm = (way & 4) != 0 ? 3 : 0;
    ways.unused = DDP_UNUSED_ERROR;
    expect(train(group, ways, true) == train(group, ways, false), "the same bits, way " + std::to_string(way));
  }
}

ddp_ranks_case_on(kEveryHostPath, run_on, blocking_calls_are_refused_until_all_have_ended, 2) {
  PassWorld first(group, Memory::kOwned), second(group, Memory::kOwned);
  first.model->begin_backward(DDP_PASS_REDUCE);
  second.model->begin_backward(DDP_PASS_REDUCE);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { first.model->begin_backward(DDP_PASS_REDUCE); },
               {"ddp_model_begin_backward: a backward pass is open"});
  mark_all(first, rank, 1);
  mark_all(second, rank, 2);
  first.model->end_backward();
  expect_error(DDP_ERROR_INVALID_STATE, [&] { group.barrier(); }, {"a backward pass is open"});
  second.model->end_backward();
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_on, replicas_are_repaired_while_another_pass_is_open, 3) {
  ddp_model_options options = model_options();
  options.check_every = 1;
  options.drift = DDP_DRIFT_RESEND;
  PassWorld other(group, Memory::kOwned);
  PassWorld checked(group, Memory::kOwned, options);
  for (int pass = 0; pass < 3; ++pass) {
    if (rank == 1) checked.values[4][8] += 1;
    other.model->begin_backward(DDP_PASS_REDUCE);
    mark_all(other, rank, pass);
    checked.run(rank, kApart + pass);
    expect_equal(checked.values[4][8], 4.0F, "repaired");
    other.model->end_backward();
    other.expect_mean(3, pass, "the pass that was open");
  }
}

ddp_ranks_case_on(kEveryHostPath, run_on, channels_are_used_again, 2) {
  const group::Channel first(group);
  for (int round = 0; round < 12; ++round) {
    const group::Channel second(group), third(group);
    expect(first.number() == 0 && second.number() == 1 && third.number() == 2, "the lowest that is free");
  }
  // A rank may destroy a model before another does.
  auto leaving = std::make_optional<group::Channel>(group);
  if (rank == 0) leaving.reset();
  expect_equal(group::Channel(group).number(), 2, "free on all ranks");
  leaving.reset();
  expect_equal(group::Channel(group).number(), 1, "free again");
}

ddp_ranks_case_on(kEveryHostPath, run_on, more_models_than_channels_share_the_first, 2) {
  std::vector<std::unique_ptr<PassWorld>> worlds;
  for (int32_t m = 0; m <= group::kMostModels; ++m) worlds.push_back(std::make_unique<PassWorld>(group, Memory::kPrivate));
  for (int32_t m = 0; m < group::kMostModels; ++m) worlds[static_cast<size_t>(m)]->model->begin_backward(DDP_PASS_REDUCE);
  PassWorld& last = *worlds.back();
  expect_error(DDP_ERROR_INVALID_STATE, [&] { last.model->begin_backward(DDP_PASS_REDUCE); },
               {"8 models of a group may have open passes"});
  for (int32_t m = 0; m < group::kMostModels; ++m) {
    PassWorld& world = *worlds[static_cast<size_t>(m)];
    mark_all(world, rank, m);
    world.model->end_backward();
    world.expect_mean(2, m, "model " + std::to_string(m));
  }
  last.run(rank, 9);
  last.expect_mean(2, 9, "the last model");
}

/// Rank 1 destroys a model whose pass is open, while another pass is open too.
ddp_case_on(kEveryHostPath, a_model_that_is_destroyed_in_its_pass_is_named) {
  run_at(path, 2, [&](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    PassWorld first(*group, Memory::kOwned);
    std::unique_ptr<PassWorld> second;
    const auto begin = [&] {
      second = std::make_unique<PassWorld>(*group, Memory::kOwned);
      first.model->begin_backward(DDP_PASS_REDUCE);
      second->model->begin_backward(DDP_PASS_REDUCE);
      mark_all(*second, rank, 2);
    };
    if (rank == 1) {
      begin();
      second.reset();
      return;
    }
    try {
      begin();  // the other rank may have left already
      wait_until([&] {
        try {
          group->health().check_usable();
          return false;
        } catch (const Error&) {
          return true;
        }
      });
      mark_all(first, rank, 1);
      second->model->end_backward();
      first.model->end_backward();
      throw std::runtime_error("the group is whole");
    } catch (const Error& error) {
      expect_contains(error.text(), "rank 1");
    }
  });
}

void a_killed_rank_is_named(ddp_backend backend) {
  ddp_group_options options = world_options();
  options.backend = backend;
  hit_rank_1(3, options, [](group::Group& group, int rank, Reporter& report) {
    PassWorld first(group, Memory::kOwned), second(group, Memory::kPrivate);
    return expect_error(DDP_ERROR_PEER_FAILED, [&] {
      for (int pass = 0;; ++pass) {
        first.model->begin_backward(DDP_PASS_REDUCE);
        second.model->begin_backward(DDP_PASS_REDUCE);
        mark_all(second, rank, pass);
        mark_all(first, rank, pass);
        first.model->end_backward();
        second.model->end_backward();
        if (pass == 5) report.say("training");
      }
    });
  });
}

ddp_case(a_killed_rank_is_named_over_shared_memory) { a_killed_rank_is_named(DDP_BACKEND_SHM); }
ddp_case(a_killed_rank_is_named_over_gloo) {
  if (has_gloo()) a_killed_rank_is_named(DDP_BACKEND_GLOO);
}
