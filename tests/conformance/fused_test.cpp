// SPDX-License-Identifier: Apache-2.0
// Fused and sharded updates give the bits of an ordinary optimizer, on every path, with parameters and gradients in any
// memory; a pass that fails takes nothing with it; memory is divided. The ordinary optimizer is held to a float64 oracle in
// unit/optim/optimizer_test.cpp.
#include <csignal>

#include "parts/hooks/hook_bucket.hpp"
#include "support/fused_world.hpp"

namespace ddp::test {
namespace {

constexpr int kSteps = 4;

/// The parameters after some steps; in step 2 no rank uses two parameters.
std::string train(group::Group& group, Rule rule, const Ways& ways) {
  FusedWorld world(group, rule, ways);
  world.optimizer->set_parameter_options(4, 0.2, 0.5);
  world.optimizer->set_parameter_options(5, 0, 0);
  for (int step = 0; step < kSteps; ++step) {
    world.optimizer->set_rate(0.05 / (1 + step));
    world.pass(group.rank(), step, step == 2 ? std::set<int32_t>{1, 7} : std::set<int32_t>{});
    world.optimizer->step();
  }
  expect_equal(world.optimizer->step_count(), int64_t{kSteps}, "steps");
  expect_same_everywhere(group, world.bytes(), "the model");
  return world.bytes();
}

void expect_bits_of_the_ordinary_step(Path path, const Ways& base) {
  for (const int size : {1, 2, 3, 4})
    run_on(path, size, [&](group::Group& group, int) {
      for (const Rule rule : {Rule::kSgd, Rule::kMomentum, Rule::kAdamW}) {
        Ways ordinary = base;
        ordinary.values_in_group = false;
        const std::string wanted = train(group, rule, ordinary);
        for (int way = 1; way < 4; ++way) {
          Ways ways = base;
          ways.shard = (way & 1) != 0;
          ways.in_backward = (way & 2) != 0;
          expect(train(group, rule, ways) == wanted, "the bits of rule " + std::to_string(static_cast<int>(rule)) +
                                                         ", way " + std::to_string(way) + ", size " + std::to_string(size));
        }
      }
    });
}

void every_way_gives_the_bits_of_the_ordinary_step(Path path) { expect_bits_of_the_ordinary_step(path, Ways{}); }

void parameters_in_library_memory_are_written_directly(Path path) {
  Ways ways;
  ways.values_in_group = true;
  expect_bits_of_the_ordinary_step(path, ways);
}

void gradients_in_private_memory_give_the_same_bits(Path path) {
  Ways ways;
  ways.owned_grads = false;
  expect_bits_of_the_ordinary_step(path, ways);
}

void a_lane_of_its_own_gives_the_same_bits(Path path) {
  Ways ways;
  ways.progress = DDP_PROGRESS_THREAD;
  ways.values_in_group = true;
  expect_bits_of_the_ordinary_step(path, ways);
}

void clipping_has_the_same_bits_in_every_way(Path path) {
  Ways ways;
  ways.max_norm = 3;
  ways.clip_value = 0.01;
  ways.values_in_group = true;
  expect_bits_of_the_ordinary_step(path, ways);
}

/// A hook reduces a copy of each bucket, so no part sees the slices while they are added up.
void clipping_behind_a_hook_has_the_same_bits_in_every_way(Path path) {
  Ways ways;
  ways.max_norm = 3;
  ways.hook = parts::Hook{parts::Hook::Kind::kCallback, "mean", cpu::ReduceRule::kAsItIs,
                          [](parts::HookBucket& bucket) { bucket.all_reduce(bucket.contents(), bucket.reduce()); }};
  expect_bits_of_the_ordinary_step(path, ways);
}

void master_weights_have_the_same_bits_in_every_way(Path path) {
  Ways ways;
  ways.dtype = DDP_BF16;
  ways.master_weights = true;
  expect_bits_of_the_ordinary_step(path, ways);
}

/// Staged gradients are sent with half the bytes, also where only slices are wanted.
void sixteen_bits_halve_what_a_sharded_pass_sends(Path path) {
  if (path == Path::kGloo) return;  // reduces everywhere; conformance/wire_hook_processes_test.cpp counts there
  run_on(path, 3, [](group::Group& group, int rank) {
    const auto sent = [&](const parts::Hook& hook, bool shard) {
      Ways ways;
      ways.shard = shard;
      ways.owned_grads = false;
      ways.hook = hook;
      FusedWorld world(group, Rule::kMomentum, ways);
      ddp_model_stats stats{};
      for (int step = 0; step < 3; ++step) {
        world.pass(rank, step);
        world.model->pass().meter().fill(stats);  // of the gradients alone
        world.optimizer->step();
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

void a_clipped_step_is_that_of_gradients_scaled_by_hand(Path path) {
  run_on(path, 3, [](group::Group& group, int rank) {
    Ways clipped;
    clipped.shard = true;
    clipped.max_norm = 5;
    FusedWorld world(group, Rule::kSgd, clipped);
    FusedWorld plain(group, Rule::kSgd, Ways{});
    for (int step = 0; step < 3; ++step) {
      world.pass(rank, step);
      const double seen = world.model->gradients().norm(2);
      plain.pass(rank, step);
      const double norm = plain.model->gradients().norm(2);
      expect(seen == norm && norm > 5, "the norm of slices is that of the whole gradient");
      for (const double p : {1.0, std::numeric_limits<double>::infinity()})
        expect(world.model->gradients().norm(p) == plain.model->gradients().norm(p), "so are other norms");
      plain.model->gradients().scale(5 / (norm + 1e-6));
      plain.optimizer->step();
      world.optimizer->step();
      expect(world.optimizer->grad_norm() == norm, "the optimizer tells the norm");
      expect(world.bytes() == plain.bytes(), "clipping is scaling");
    }
  });
}

void state_is_divided_among_the_ranks(Path path) {
  run_on(path, 4, [](group::Group& group, int) {
    Ways ways;
    ways.shard = true;
    FusedWorld world(group, Rule::kAdamW, ways);
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

void a_void_pass_is_taken_back_everywhere(Path path) {
  for (const bool shard : {false, true})
    run_on(path, 3, [shard](group::Group& group, int rank) {
      Ways ways;
      ways.in_backward = true;
      ways.shard = shard;
      ways.unused = DDP_UNUSED_ERROR;
      ways.values_in_group = shard;
      FusedWorld world(group, Rule::kAdamW, ways);
      FusedWorld other(group, Rule::kAdamW, [] {
        Ways plain;
        plain.unused = DDP_UNUSED_ERROR;
        return plain;
      }());
      for (int step = 0; step < 5; ++step) {
        const bool fails = step == 1 || step == 3;
        const std::string before = world.bytes();
        world.fill(rank, step);
        if (fails) {
          // The last bucket misses a gradient on one rank, when the first ones have been updated.
          const std::string text = expect_error(
              DDP_ERROR_INVALID_STATE, [&] { world.reduce({}, rank == 1 ? std::set<int32_t>{0} : std::set<int32_t>{}); });
          expect_contains(text, "rank 1 did not mark \"p0\"");
          expect(world.bytes() == before, "the parameters are as before the pass");
          continue;
        }
        world.reduce();
        world.optimizer->step();
        other.pass(rank, step);
        other.optimizer->step();
        expect(world.bytes() == other.bytes(), "the moments are as before the failed pass too");
      }
    });
}

void gradients_that_are_not_finite_are_met_alike(Path path) {
  for (const bool shard : {false, true})
    run_on(path, 3, [shard](group::Group& group, int rank) {
      Ways ways;
      ways.shard = shard;
      ways.nonfinite = DDP_NONFINITE_SKIP;
      FusedWorld world(group, Rule::kAdamW, ways);
      world.pass(rank, 0);
      world.optimizer->step();
      const std::string before = world.bytes();
      world.fill(rank, 1);
      if (rank == 2)
        world.set(world.model->table().parameter(6).grad.data, 19'999, std::numeric_limits<double>::quiet_NaN());
      world.reduce();
      world.optimizer->step();
      expect(world.bytes() == before, "a skipped step changes nothing");
      expect_equal(world.optimizer->skipped_count(), int64_t{1}, "skipped");
      expect_equal(world.optimizer->step_count(), int64_t{1}, "steps");

      ways.nonfinite = DDP_NONFINITE_FAIL;
      world.optimizer.reset();
      world.ways = ways;
      world.make_optimizer(Rule::kAdamW);
      world.fill(rank, 2);
      if (rank == 0) world.set(world.model->table().parameter(4).grad.data, 1, std::numeric_limits<double>::infinity());
      world.reduce();
      const std::string text = expect_error(DDP_ERROR_INVALID_STATE, [&] { world.optimizer->step(); });
      expect_contains(text, "\"p4\"");
      expect_same_everywhere(group, text, "the text");
      expect(world.bytes() == before, "a failed step changes nothing");
    });
}

void a_loss_scale_adapts_alike_and_leaves_the_bits(Path path) {
  run_on(path, 2, [](group::Group& group, int rank) {
    Ways ways;
    ways.shard = true;
    FusedWorld world(group, Rule::kAdamW, ways);
    FusedWorld plain(group, Rule::kAdamW, Ways{});
    ddp_loss_scale_options options = optim::default_loss_scale_options();
    options.initial = 1024;
    options.interval = 2;
    world.optimizer->set_loss_scale(options);
    double wanted = 1024;
    for (int step = 0; step < 6; ++step) {
      expect_equal(world.optimizer->loss_scale(), wanted, "the scale");
      world.fill(rank, step);
      for (size_t p = 0; p < kFusedShapes.size(); ++p) {
        auto* const grad = reinterpret_cast<float*>(world.model->table().parameter(static_cast<int32_t>(p)).grad.data);
        for (int64_t i = 0; i < kFusedShapes[p]; ++i) grad[i] *= static_cast<float>(wanted);
        if (step == 3 && p == 2) grad[0] = std::numeric_limits<float>::infinity();
      }
      world.reduce();
      world.optimizer->step();
      if (step == 3) {
        wanted /= 2;
        continue;
      }
      if (step == 1 || step == 5) wanted *= 2;
      plain.pass(rank, step);
      plain.optimizer->step();
      expect(world.bytes() == plain.bytes(), "a scale that is a power of two changes no bit");
    }
    expect_equal(world.optimizer->skipped_count(), int64_t{1}, "skipped");
  });
}

void steps_and_passes_must_alternate_with_in_backward(Path path) {
  run_on(path, 2, [](group::Group& group, int rank) {
    Ways ways;
    ways.in_backward = true;
    FusedWorld world(group, Rule::kSgd, ways);
    world.pass(rank, 0);
    const std::string text = expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->begin_backward(DDP_PASS_REDUCE); });
    expect_contains(text, "ddp_optimizer_step");
    world.optimizer->step();
    world.model->begin_backward(DDP_PASS_REDUCE);
    (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.optimizer->set_rate(1); });
    (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.optimizer->step(); });
    for (int32_t p = 0; p < world.model->table().parameter_count(); ++p) world.model->pass().mark_ready(p);
    world.model->end_backward();
    world.optimizer->step();
    (void)expect_error(DDP_ERROR_INVALID_STATE, [&] {
      world.model->optimizer_slot().attach(
          std::make_shared<optim::Sgd>(world.model, optim::default_sgd_options(), optim::default_optimizer_options()));
    });
  });
}

void ranks_that_shard_differently_are_told(Path path) {
  if (path == Path::kGloo) return;  // every other transport reduces to slices, and its stamp has that
  run_at(path, 2, [](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    Ways ways;
    ways.shard = rank == 0;
    FusedWorld world(*group, Rule::kSgd, ways);
    (void)expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] {
      for (int step = 0; step < 3; ++step) {
        world.pass(rank, step);
        world.optimizer->step();
      }
    });
  });
}

/// Rank 1 dies between its pass and its step, when the others wait for its slices.
void a_rank_that_dies_before_it_publishes_is_named(Path path) {
  if (path == Path::kLocal) return;  // threads do not die alone
  const Folder folder;
  ddp_group_options options = world_options();
  options.backend = path == Path::kShm ? DDP_BACKEND_SHM : DDP_BACKEND_GLOO;
  Procs procs(3, [&](int rank, Reporter&) {
    const auto group = join_process_group(folder, rank, 3, options);
    Ways ways;
    ways.shard = true;
    FusedWorld world(*group, Rule::kAdamW, ways);
    const std::string text = expect_error(DDP_ERROR_PEER_FAILED, [&] {
      for (int step = 0; step < 10; ++step) {
        world.pass(rank, step);
        if (rank == 1 && step == 3) (void)raise(SIGKILL);
        world.optimizer->step();
      }
    });
    expect_contains(text, "rank 1");
    return text;
  });
  for (const int rank : {0, 2}) {
    const ProcResult& result = procs.wait_one(rank);
    expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe());
  }
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_paths_test(every_way_gives_the_bits_of_the_ordinary_step),
      {"every way gives the bits of the ordinary step on several hosts",
       guarded<&on_path<&every_way_gives_the_bits_of_the_ordinary_step, Path::kHosts>>, nullptr, nullptr, nullptr},
      ddp_paths_test(parameters_in_library_memory_are_written_directly),
      ddp_paths_test(gradients_in_private_memory_give_the_same_bits),
      ddp_paths_test(a_lane_of_its_own_gives_the_same_bits),
      ddp_paths_test(clipping_has_the_same_bits_in_every_way),
      ddp_paths_test(clipping_behind_a_hook_has_the_same_bits_in_every_way),
      ddp_paths_test(master_weights_have_the_same_bits_in_every_way),
      ddp_paths_test(sixteen_bits_halve_what_a_sharded_pass_sends),
      ddp_paths_test(a_clipped_step_is_that_of_gradients_scaled_by_hand),
      ddp_paths_test(state_is_divided_among_the_ranks),
      ddp_paths_test(a_void_pass_is_taken_back_everywhere),
      {"a void pass is taken back on several hosts", guarded<&on_path<&a_void_pass_is_taken_back_everywhere, Path::kHosts>>,
       nullptr, nullptr, nullptr},
      ddp_paths_test(gradients_that_are_not_finite_are_met_alike),
      ddp_paths_test(a_loss_scale_adapts_alike_and_leaves_the_bits),
      ddp_paths_test(steps_and_passes_must_alternate_with_in_backward),
      ddp_paths_test(ranks_that_shard_differently_are_told),
      ddp_paths_test(a_rank_that_dies_before_it_publishes_is_named),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
