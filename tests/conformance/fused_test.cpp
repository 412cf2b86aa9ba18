// SPDX-License-Identifier: Apache-2.0
// Fused and sharded updates give the bits of an ordinary optimizer, on every path, with parameters and gradients in any
// memory; a pass that fails takes nothing with it; memory is divided. The ordinary optimizer is held to a float64 oracle in
// unit/optim/optimizer_test.cpp.

#include "conformance/hook_world.hpp"
#include "conformance/step_bits.hpp"
#include "model/uneven.hpp"
#include "support/check.hpp"

/// Of the step after the pass in host memory.
BitRow fused_row(const char* name, const Paths& paths, const Change& change) {
  return {name,
          paths,
          {1, 2, 3, 4},
          {Rule::kSgd, Rule::kMomentum, Rule::kAdamW},
          change,
          [](Ways& ways) { ways.values_in_group = false, ways.home = Home::kHost; },
          kShard | kInBackward,
          {.frozen = 5, .has_states = true},
          true};
}

/// It takes part in the step and its work afterwards, wherever its tensors are.
BitRow skipping_row() {
  BitRow row = fused_row("a rank that skips a pass takes part in its step", kThreeAndGpus, [](Ways&) {});
  row.sizes = {2};
  row.rules = {Rule::kAdamW};
  row.training.skips = true;
  return row;
}

ddp_bit_rows(skipping_row(), fused_row("every way has the bits of the ordinary step", kEveryPath, [](Ways&) {}),
             fused_row("parameters in library memory are written directly", kThreePaths,
                       [](Ways& ways) { ways.values_in_group = true; }),
             fused_row("gradients in private memory", kThreeAndGpus, [](Ways& ways) { ways.owned_grads = false; }),
             fused_row("a lane of its own", kThreeAndGpus,
                       [](Ways& ways) { ways.progress = DDP_PROGRESS_THREAD, ways.values_in_group = true; }),
             fused_row("clipping", kThreeAndGpus,
                       [](Ways& ways) { ways.max_norm = 3, ways.clip_value = 0.01, ways.values_in_group = true; }),
             // A hook reduces a copy of each bucket, so no part sees the slices while they are added up.
             fused_row("clipping behind a hook", kThreePaths,
                       [](Ways& ways) { ways.max_norm = 3, ways.hook = callback(average); }),
             fused_row("master weights", kThreeAndGpus,
                       [](Ways& ways) { ways.dtype = DDP_BF16, ways.master_weights = true; }));

/// A model of all types, with what makes a step wait, decide or scale; on GPUs also with some tensors in host memory, which
/// makes other buckets and so other slices.
ddp_case_on(kThreeAndGpus, models_of_all_types_have_the_same_bits_in_every_way) {
  for (const Home home : {Home::kOfPath, Home::kBoth})
    for (int policy = 0; policy < 5 && (home == Home::kOfPath || path == Path::kGpu); ++policy) {
      BitRow row = fused_row("all types", {}, [=](Ways& ways) {
        ways = mixed_ways(home);
        ways.master_weights = policy == 1 || policy == 3;
        ways.clip_value = policy == 1 ? 5 : 0;
        ways.max_norm = policy == 2 || policy == 3 ? 40 : 0;
        ways.nonfinite = policy == 3 || policy == 4 ? DDP_NONFINITE_SKIP : DDP_NONFINITE_KEEP;
        ways.unused = policy == 4 ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
      });
      row.sizes = home == Home::kBoth ? std::vector<int>{2} : std::vector<int>{2, 4};
      row.rules = {Rule::kNesterov, Rule::kAdamW};
      expect_bits(path, row);
    }
}

/// Staged gradients are sent with half the bytes, also where only slices are wanted.
ddp_case_on(kThreePaths, sixteen_bits_halve_what_a_sharded_pass_sends) {
  if (path == Path::kGloo) return;  // reduces everywhere; conformance/wire_hook_test.cpp counts there
  run_on(path, 3, [](group::Group& group, int rank) {
    const auto sent = [&](const parts::Hook& hook, bool shard) {
      Ways ways;
      ways.shard = shard;
      ways.owned_grads = false;
      ways.hook = hook;
      Training world(group, Rule::kMomentum, ways);
      ddp_model_stats stats{};
      for (int step = 0; step < 3; ++step) {
        world.pass(rank, step);
        world.model->passes().meter().fill(stats);  // of the gradients alone
        world.step();
      }
      return std::pair{stats.sent_bytes, world.bytes()};
    };
    const parts::Hook none;
    const parts::Hook bf16 = parts::Hook::sent_as(DDP_BF16);
    const auto plain = sent(none, true);
    const auto packed = sent(bf16, true);
    expect(plain.first > 0 && packed.first * 2 == plain.first,
           "half the bytes: " + std::to_string(packed.first) + " of " + std::to_string(plain.first));
    expect(packed.second == sent(bf16, false).second, "and the bits of an ordinary pass with the hook");
    expect(plain.second != packed.second, "the hook rounds");
    expect(plain.first < sent(none, false).first, "slices alone send less than everything");
  });
}

ddp_ranks_case_on(kThreeAndGpus, run_on, a_clipped_step_is_that_of_gradients_scaled_by_hand, 3) {
  Ways clipped;
  clipped.shard = true;
  clipped.max_norm = 5;
  Training world(group, Rule::kSgd, clipped);
  Ways on_host;
  on_host.home = Home::kHost;
  Training plain(group, Rule::kSgd, on_host);
  for (int step = 0; step < 3; ++step) {
    world.pass(rank, step);
    const double seen = world.model->gradients().norm(2, world.stream());
    plain.pass(rank, step);
    const double norm = plain.model->gradients().norm(2);
    expect(seen == norm && norm > 5, "the norm of slices is that of the whole gradient");
    for (const double p : {1.0, std::numeric_limits<double>::infinity()})
      expect(world.model->gradients().norm(p, world.stream()) == plain.model->gradients().norm(p), "so are other norms");
    plain.model->gradients().scale(5 / (norm + 1e-6));
    plain.step();
    world.step();
    expect(world.optimizer->grad_norm() == norm, "the optimizer tells the norm");
    expect(world.bytes() == plain.bytes(), "clipping is scaling");
  }
}

ddp_case_on(kThreeAndGpus, state_is_divided_among_the_ranks) {
  run_on(path, 4, [](group::Group& group, int) {
    Training world(group, Rule::kAdamW, way_of(kShard));
    int64_t total = 0;
    int64_t own = 0;
    for (const model::StateTensor& each : world.optimizer->state_tensors()) {
      expect_equal(each.parts.size(), size_t{4}, "parts");
      int64_t next = 0;
      for (const std::vector<OwnedSpan>& theirs : each.parts) next += count_of(theirs);
      expect_equal(next, each.tensor.count, "elements of all parts");
      total += each.tensor.count;
      own += count_of(each.parts[static_cast<size_t>(group.rank())]);
    }
    expect(own * 4 < total + 4 * 8 * 1024 && own * 4 > total / 2, "a rank has about a fourth");
  });
}

/// body(group, rank, ways) with and without shard: the usual model on 3 ranks; on GPUs also one of all types with master
/// weights on 2 ranks, on the GPU or some of it in host memory, elsewhere one whose values libddp keeps.
void run_each_model(Path path, const std::function<void(group::Group&, int, const Ways&)>& body) {
  std::vector<Ways> all(1);
  if (path == Path::kGpu) {
    for (const Home home : {Home::kGpu, Home::kBoth}) all.push_back(mixed_ways(home)), all.back().master_weights = true;
  } else {
    all.emplace_back().own_values = true;
    all.back().shapes = {900, 64, 5000, 0, 70'001, 7, 33'000, 1024};
  }
  for (Ways& ways : all)
    for (const bool shard : {false, true}) {
      ways.shard = shard;
      run_on(path, ways.dtypes.empty() ? 3 : 2, [&](group::Group& group, int rank) { body(group, rank, ways); });
    }
}

ddp_case_on(kEveryPath, a_void_pass_is_taken_back_everywhere) {
  run_each_model(path, [](group::Group& group, int, const Ways& base) {
    Ways ways = base, plain = base;
    ways.in_backward = true;
    ways.unused = plain.unused = DDP_UNUSED_ERROR;
    ways.values_in_group = base.shard && base.dtypes.empty() && !base.own_values;
    plain.home = Home::kHost;
    plain.shard = false;
    Training world(group, Rule::kAdamW, ways), other(group, Rule::kAdamW, plain);
    expect_no_trace(world, other, [&](int step) { expect_void_pass(world, step); });
  });
}

ddp_case_on(kThreeAndGpus, gradients_that_are_not_finite_are_met_alike) {
  run_each_model(path, [](group::Group& group, int rank, const Ways& base) {
    Ways ways = base;
    ways.nonfinite = DDP_NONFINITE_SKIP;
    Training world(group, Rule::kAdamW, ways);
    world.train(rank, 0);
    const std::string before = world.bytes();
    world.fill(rank, 1);
    const size_t bad = base.dtypes.empty() ? 6 : 7;
    if (rank == group.size() - 1)
      world.set_grad(static_cast<int32_t>(bad), world.count(bad) - 1, std::numeric_limits<double>::quiet_NaN());
    world.reduce();
    world.step();
    expect(world.bytes() == before, "a skipped step changes nothing");
    expect_equal(world.optimizer->skipped_count(), int64_t{1}, "skipped");
    expect_equal(world.optimizer->step_count(), int64_t{1}, "steps");

    world.ways.nonfinite = DDP_NONFINITE_FAIL;
    world.optimizers.clear();
    world.optimizer.reset();
    world.make_optimizer(Rule::kAdamW);
    world.fill(rank, 2);
    if (rank == 0) world.set_grad(4, world.count(4) - 1, std::numeric_limits<double>::infinity());
    world.reduce();
    const std::string text = expect_error(DDP_ERROR_INVALID_STATE, [&] { world.step(); }, {"\"p4\""});
    expect_same_everywhere(group, text, "the text");
    expect(world.bytes() == before, "a failed step changes nothing");
  });
}

ddp_ranks_case_on(kThreeAndGpus, run_on, a_loss_scale_adapts_alike_and_leaves_the_bits, 2) {
  Training world(group, Rule::kAdamW, way_of(kShard));
  Ways on_host;
  on_host.home = Home::kHost;
  Training plain(group, Rule::kAdamW, on_host);
  world.set_loss_scale(1024, 2);
  double wanted = 1024;
  for (int step = 0; step < 6; ++step) {
    expect_equal(world.optimizer->loss_scale(), wanted, "the scale");
    world.scale = wanted;
    world.fill(rank, step);
    if (step == 3) world.set_grad(2, 0, std::numeric_limits<double>::infinity());
    world.reduce();
    world.step();
    if (step == 3) {
      wanted /= 2;
      continue;
    }
    if (step == 1 || step == 5) wanted *= 2;
    plain.train(rank, step);
    expect(world.bytes() == plain.bytes(), "a scale that is a power of two changes no bit");
  }
  expect_equal(world.optimizer->skipped_count(), int64_t{1}, "skipped");
}

ddp_ranks_case_on(kThreeAndGpus, run_on, steps_and_passes_must_alternate_with_in_backward, 2) {
  Training world(group, Rule::kSgd, way_of(kInBackward));
  world.pass(rank, 0);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->begin_backward(DDP_PASS_REDUCE); }, {"ddp_optimizer_step"});
  world.step();
  world.model->begin_backward(DDP_PASS_REDUCE);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.optimizer->set_rate(1); });
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.step(); });
  world.mark();
  world.model->end_backward(world.stream());
  world.step();
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] {
    world.model->optimizer_slot().attach(
        std::make_shared<optim::Sgd>(world.model, optim::default_sgd_options(), optim::default_optimizer_options()));
  });
}

ddp_case_on(kThreePaths, ranks_that_shard_differently_are_told) {
  if (path == Path::kGloo) return;  // every other transport reduces to slices, and its stamp has that
  run_at(path, 2, [](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    Training world(*group, Rule::kSgd, way_of(rank == 0 ? kShard : 0));
    (void)expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] {
      for (int step = 0; step < 3; ++step) world.train(rank, step);
    });
  });
}

/// Rank 1 dies between its pass and its step, when the others wait for its slices.
ddp_case_on(kThreePaths, a_rank_that_dies_before_it_publishes_is_named) {
  expect_death_of_rank_1(path, 3, [](group::Group& group, int rank, const Folder&) {
    Training world(group, Rule::kAdamW, way_of(kShard));
    return expect_error(DDP_ERROR_PEER_FAILED, [&] {
      for (int step = 0; step < 10; ++step) {
        world.pass(rank, step);
        if (rank == 1 && step == 3) (void)raise(SIGKILL);
        world.step();
      }
    });
  });
}
