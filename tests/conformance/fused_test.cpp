// SPDX-License-Identifier: Apache-2.0
// Fused and sharded updates give the bits of an ordinary optimizer, on every path, with parameters and gradients in any
// memory; a pass that fails takes nothing with it; memory is divided. The ordinary optimizer is held to a float64 oracle in
// unit/optim/optimizer_test.cpp.

#include "model/uneven.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

constexpr int kSteps = 4;

/// Parameters, state, norm and counts after some steps; in step 2 no rank uses two parameters if that is allowed, and step 1
/// is left out if a gradient that is not finite is.
std::string train(group::Group& group, Rule rule, const Ways& ways) {
  Training world(group, rule, ways);
  world.optimizer->set_parameter_options(4, 0.2, 0.5);
  world.optimizer->set_parameter_options(5, 0, 0);
  const bool skips = ways.nonfinite == DDP_NONFINITE_SKIP;
  for (int step = 0; step < kSteps; ++step) {
    world.optimizer->set_rate(0.05 / (1 + step));
    world.fill(group.rank(), step);
    if (skips && step == 1 && group.rank() == 0) world.set_grad(3, 0, std::numeric_limits<double>::infinity());
    world.reduce(step == 2 && ways.unused == DDP_UNUSED_ALLOW ? std::set<int32_t>{1, 7} : std::set<int32_t>{});
    world.step();
  }
  expect_equal(world.optimizer->step_count(), int64_t{skips ? kSteps - 1 : kSteps}, "steps");
  expect_equal(world.optimizer->skipped_count(), int64_t{skips ? 1 : 0}, "skipped");
  expect_same_everywhere(group, world.bytes(), "the model");
  std::string all = world.bytes() + world.state() + std::to_string(world.optimizer->grad_norm());
  for (const auto& [key, value] : world.optimizer->state_fields()) all += key + "=" + value + " ";
  return all;
}

/// Of the step after the pass in host memory.
void expect_bits_of_the_ordinary_step(Path path, const Ways& base, const std::vector<int>& sizes = {1, 2, 3, 4},
                                      const std::vector<Rule>& rules = {Rule::kSgd, Rule::kMomentum, Rule::kAdamW}) {
  for (const int size : sizes)
    run_on(path, size, [&](group::Group& group, int) {
      for (const Rule rule : rules) {
        Ways ordinary = base;
        ordinary.values_in_group = false;
        ordinary.home = Home::kHost;
        const std::string wanted = train(group, rule, ordinary);
        for (int way = path == Path::kGpu ? 0 : 1; way < 4; ++way) {
          Ways ways = base;
          ways.shard = (way & 1) != 0;
          ways.in_backward = (way & 2) != 0;
          expect(train(group, rule, ways) == wanted, "the bits of rule " + std::to_string(static_cast<int>(rule)) +
                                                         ", way " + std::to_string(way) + ", size " + std::to_string(size));
        }
      }
    });
}

/// Each of them in every way of making steps.
struct BitCase {
  const char* name;
  Paths paths;
  void (*change)(Ways& ways);
};
const Paths kThreeAndGpus = {Path::kLocal, Path::kShm, Path::kGloo, Path::kGpu};
const BitCase kBitCases[] = {
    {"plain", kEveryPath, [](Ways&) {}},
    {"parameters in library memory are written directly", kThreePaths, [](Ways& ways) { ways.values_in_group = true; }},
    {"gradients in private memory", kThreeAndGpus, [](Ways& ways) { ways.owned_grads = false; }},
    {"a lane of its own", kThreeAndGpus,
     [](Ways& ways) { ways.progress = DDP_PROGRESS_THREAD, ways.values_in_group = true; }},
    {"clipping", kThreeAndGpus, [](Ways& ways) { ways.max_norm = 3, ways.clip_value = 0.01, ways.values_in_group = true; }},
    // A hook reduces a copy of each bucket, so no part sees the slices while they are added up.
    {"clipping behind a hook", kThreePaths,
     [](Ways& ways) {
       ways.max_norm = 3;
       ways.hook = parts::Hook{parts::Hook::Kind::kCallback, "mean", cpu::ReduceRule::kAsItIs,
                               [](parts::HookBucket& bucket) { bucket.all_reduce(bucket.contents(), bucket.reduce()); }};
     }},
    {"master weights", kThreeAndGpus, [](Ways& ways) { ways.dtype = DDP_BF16, ways.master_weights = true; }},
};

/// A model of all types, with what makes a step wait, decide or scale; on GPUs also with some tensors in host memory, which
/// makes other buckets and so other slices.
ddp_case_on(kThreeAndGpus, models_of_all_types_have_the_same_bits_in_every_way) {
  for (const Home home : {Home::kOfPath, Home::kBoth}) {
    if (home == Home::kBoth && path != Path::kGpu) continue;
    for (int policy = 0; policy < 5; ++policy) {
      Ways ways = mixed_ways(home);
      ways.master_weights = policy == 1 || policy == 3;
      ways.clip_value = policy == 1 ? 5 : 0;
      ways.max_norm = policy == 2 || policy == 3 ? 40 : 0;
      ways.nonfinite = policy == 3 || policy == 4 ? DDP_NONFINITE_SKIP : DDP_NONFINITE_KEEP;
      ways.unused = policy == 4 ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
      const std::vector<int> ranks = home == Home::kBoth ? std::vector<int>{2} : std::vector<int>{2, 4};
      expect_bits_of_the_ordinary_step(path, ways, ranks, {Rule::kNesterov, Rule::kAdamW});
    }
  }
}

/// Of the step and its work afterwards, wherever the skipping rank's tensors are.
ddp_ranks_case_on(kThreeAndGpus, run_on, a_rank_that_skips_a_pass_takes_part_in_its_step, 2) {
  for (int way = 0; way < 4; ++way) {
    Ways ways, plain;
    ways.shard = (way & 1) != 0;
    ways.in_backward = (way & 2) != 0;
    plain.home = Home::kHost;
    Training world(group, Rule::kAdamW, ways), other(group, Rule::kAdamW, plain);
    for (int step = 0; step < kSteps; ++step) {
      for (Training* const each : {&world, &other}) {
        each->fill(rank, step);
        if (step == 2 && rank == 0)
          skip_backward(*each->model, each->stream());
        else
          each->reduce();
        each->step();
      }
      expect(world.bytes() == other.bytes(), "way " + std::to_string(way) + ", step " + std::to_string(step));
    }
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
    Ways ways;
    ways.shard = true;
    Training world(group, Rule::kAdamW, ways);
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
  run_each_model(path, [](group::Group& group, int rank, const Ways& base) {
    Ways ways = base, plain = base;
    ways.in_backward = true;
    ways.unused = plain.unused = DDP_UNUSED_ERROR;
    ways.values_in_group = base.shard && base.dtypes.empty() && !base.own_values;
    plain.home = Home::kHost;
    plain.shard = false;
    Training world(group, Rule::kAdamW, ways), other(group, Rule::kAdamW, plain);
    for (int step = 0; step < 5; ++step) {
      const bool fails = step == 1 || step == 3;
      const std::string before = world.bytes();
      world.fill(rank, step);
      if (fails) {
        // The last bucket misses a gradient on one rank, when the first ones have been updated.
        expect_error(DDP_ERROR_INVALID_STATE,
                     [&] { world.reduce({}, rank == 1 ? std::set<int32_t>{0} : std::set<int32_t>{}); },
                     {"rank 1 did not mark \"p0\""});
        expect(world.bytes() == before, "the parameters are as before the pass");
        continue;
      }
      world.reduce();
      world.step();
      other.train(rank, step);
      expect(world.bytes() == other.bytes(), "the moments are as before the failed pass too");
    }
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
  Ways ways;
  ways.shard = true;
  Training world(group, Rule::kAdamW, ways);
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
  Ways ways;
  ways.in_backward = true;
  Training world(group, Rule::kSgd, ways);
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
    Ways ways;
    ways.shard = rank == 0;
    Training world(*group, Rule::kSgd, ways);
    (void)expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] {
      for (int step = 0; step < 3; ++step) {
        world.train(rank, step);
      }
    });
  });
}

/// Rank 1 dies between its pass and its step, when the others wait for its slices.
ddp_case_on(kThreePaths, a_rank_that_dies_before_it_publishes_is_named) {
  if (path == Path::kLocal) return;  // threads do not die alone
  const Folder folder;
  ddp_group_options options = world_options();
  options.backend = path == Path::kShm ? DDP_BACKEND_SHM : DDP_BACKEND_GLOO;
  Procs procs(3, [&](int rank, Reporter&) {
    const auto group = join_process_group(folder, rank, 3, options);
    Ways ways;
    ways.shard = true;
    Training world(*group, Rule::kAdamW, ways);
    const std::string text = expect_error(DDP_ERROR_PEER_FAILED,
                                          [&] {
                                            for (int step = 0; step < 10; ++step) {
                                              world.pass(rank, step);
                                              if (rank == 1 && step == 3) (void)raise(SIGKILL);
                                              world.step();
                                            }
                                          },
                                          {"rank 1"});
    return text;
  });
  expect_success_of(procs, {0, 2});
}

[[maybe_unused]] const bool bit_cases_are_listed = [] {
  for (const BitCase& each : kBitCases)
    list_on_paths(__FILE__, each.paths, std::string("every way gives the bits of the ordinary step: ") + each.name,
                  [&each](Path path) {
                    Ways ways;
                    each.change(ways);
                    expect_bits_of_the_ordinary_step(path, ways);
                  });
  return true;
}();
