// SPDX-License-Identifier: Apache-2.0
// Weights, and skipped, abandoned and last passes, on every transport.
#include "conformance/weight_world.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

void expect_own_gradients(const PassWorld& world, int rank) {
  for (size_t p = 0; p < kShapes.size(); ++p)
    expect(world.grad(p)[0] == gradient(rank, 0, p, 0), "gradients are as they were");
}

ddp_case_on(kEveryHostPath, a_mean_by_weight_has_the_bits_of_the_naive_loop_everywhere) {
  bool turn = false;  // which kind of memory goes with which driver
  for (const int size : kFewSizes) {
    turn = !turn;
    std::vector<Means> means;
    for (int pass = 0; pass < 6; ++pass)
      means.push_back(means_of(weights_of(size, pass), sum_of(weights_of(size, pass)), pass));
    run_if_enough_on(path, size, [&](group::Group& group, int rank) {
      for (const Memory memory : kMemories)
        for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD}) {
          if (memory != Memory::kMixed && (progress == DDP_PROGRESS_THREAD) == ((memory == Memory::kPrivate) == turn))
            continue;
          ddp_model_options options = weighted_options();
          options.progress = progress;
          PassWorld world(group, memory, options);
          for (int pass = 0; pass < 6; ++pass) {
            const std::vector<double> weights = weights_of(size, pass);
            set_weight(*world.model, weights[static_cast<size_t>(rank)]);
            run_pass(world, rank, pass);
            const std::string what = "size " + std::to_string(size) + ", memory " +
                                     std::to_string(static_cast<int>(memory)) + ", pass " + std::to_string(pass);
            // A group of one computes nothing.
            if (size > 1) expect_means(world, means[static_cast<size_t>(pass)], what);
            if (size == 1) world.expect_mean(1, pass, what);
            const auto contributing =
                std::count_if(weights.begin(), weights.end(), [](double weight) { return weight > 0; });
            expect(report_of(*world.model).contributors == contributing && report_of(*world.model).weight == sum_of(weights),
                   what + ": the report");
          }
        }
      group.barrier();
    });
  }
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_weight_of_zero_keeps_even_a_nan_out, 3) {
  for (const Memory memory : kMemories) {
    PassWorld world(group, memory, weighted_options());
    set_weight(*world.model, rank == 1 ? 0 : 2);
    world.fill(rank, 0);
    for (size_t p = 0; p < kShapes.size() && rank == 1; ++p)
      for (int64_t i = 0; i < kShapes[p]; ++i) world.grad(p)[i] = std::numeric_limits<float>::quiet_NaN();
    world.reduce();
    expect_weighted(world, {2, 0, 2}, 4, 0, "without rank 1");
    group.barrier();
  }
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, weights_that_are_all_zero_are_an_error_on_every_rank, 1, 2, 3, 4) {
  const int size = group.size();
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate}) {
    PassWorld world(group, memory, weighted_options());
    world.fill(rank, 0);
    set_weight(*world.model, 0);
    world.model->begin_backward(DDP_PASS_REDUCE);
    mark_all(*world.model);
    expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(); }, {"no rank contributed"});
    expect_own_gradients(world, rank);
    set_weight(*world.model, 1);
    run_pass(world, rank, 1);
    world.expect_mean(size, 1, "the pass after");
  }
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_weight_is_refused_when_it_is_wrong_or_too_late, 2) {
  PassWorld plain(group, Memory::kOwned);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { set_weight(*plain.model, 2); }, {"DDP_DIVISOR_WEIGHTS"});
  PassWorld world(group, Memory::kOwned, weighted_options());
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e-30, 1e30})
    (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { set_weight(*world.model, wrong); });
  world.fill(rank, 0);
  world.model->begin_backward(DDP_PASS_REDUCE);
  set_weight(*world.model, rank + 1.0);  // early enough
  mark_all(*world.model);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { set_weight(*world.model, 5); });
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { set_last_pass(*world.model); });
  world.model->end_backward();
  expect_weighted(world, {1, 2}, 3, 0, "after misuse");
  ddp_model_options sum = weighted_options();
  sum.reduce = DDP_SUM;
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT,
                     [&] { model::Model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), sum); });
  group.barrier();
}

ddp_case_on(kEveryHostPath, a_rank_that_skips_contributes_nothing_and_receives_the_result) {
  constexpr int kPasses = 4;
  for (const int size : {2, 3, 4})
    for (const ddp_divisor divisor : {DDP_DIVISOR_WORLD, DDP_DIVISOR_WEIGHTS}) {
      std::vector<std::vector<double>> weights;
      std::vector<Means> means;
      for (int pass = 0; pass < kPasses; ++pass) {
        weights.emplace_back(static_cast<size_t>(size), 1.0);
        weights.back()[static_cast<size_t>(pass % size)] = 0;
        if (size == 4) weights.back()[static_cast<size_t>((pass + 2) % size)] = 0;  // two of them
        means.push_back(means_of(weights.back(), divisor == DDP_DIVISOR_WORLD ? size : sum_of(weights.back()), pass));
      }
      run_if_enough_on(path, size, [&](group::Group& group, int rank) {
        for (const Memory memory : kMemories) {
          ddp_model_options options = model_options();
          options.divisor = divisor;
          PassWorld world(group, memory, options);
          for (int pass = 0; pass < kPasses; ++pass) {
            const auto at = static_cast<size_t>(pass);
            if (weights[at][static_cast<size_t>(rank)] == 0) {
              world.fill(99, pass);  // left from somewhere
              skip_backward(*world.model);
            } else {
              run_pass(world, rank, pass);
            }
            expect_means(world, means[at], "size " + std::to_string(size) + ", pass " + std::to_string(pass));
            expect(report_of(*world.model).contributors == static_cast<int32_t>(sum_of(weights[at])), "contributors");
          }
        }
        group.barrier();
      });
    }
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_pass_that_all_skip_is_an_error_and_training_goes_on, 1, 2, 3, 4) {
  const int size = group.size();
  PassWorld world(group, Memory::kMixed);
  world.fill(rank, 0);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { skip_backward(*world.model); }, {"no rank contributed"});
  expect_own_gradients(world, rank);
  run_pass(world, rank, 1);
  world.expect_mean(size, 1, "the pass after");
}

ddp_case_on(kEveryHostPath, what_only_a_skipping_rank_would_use_stays_untouched) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate})
    run_if_enough_on(path, 3, [&](group::Group& group, int rank) {
      ddp_model_options options = model_options();
      options.unused = DDP_UNUSED_ALLOW;
      PassWorld world(group, memory, options);
      world.fill(rank, 0);
      if (rank == 2) {  // it accumulates everything, and has no batch for the pass that reduces
        world.model->begin_backward(DDP_PASS_ACCUMULATE);
        mark_all(*world.model);
        world.model->end_backward();
        skip_backward(*world.model);
      } else {
        world.model->begin_backward(DDP_PASS_REDUCE);
        for (size_t p = 0; p < kShapes.size(); ++p)
          if (p != 4) world.model->pass().mark_ready(static_cast<int32_t>(p));
        world.model->end_backward();
      }
      for (int64_t i = 0; i < kShapes[4]; ++i)
        expect(world.grad(4)[i] == gradient(rank, 0, 4, i), "nobody who counts used it");
      expect(!world.model->pass().results().was_used(4) && world.model->pass().results().was_used(3), "was_used");
      group.barrier();
    });
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, an_abandoned_pass_is_void_with_the_reason_on_every_other_rank, 1, 2, 3,
                  4) {
  const int size = group.size();
  for (const ddp_unused unused : {DDP_UNUSED_ERROR, DDP_UNUSED_ALLOW})
    for (const size_t marked : {size_t{0}, size_t{3}, kShapes.size() - 1}) {
      ddp_model_options options = model_options();
      options.unused = unused;
      PassWorld world(group, Memory::kMixed, options);
      const int failing = size - 1;
      world.fill(rank, 0);
      world.model->begin_backward(DDP_PASS_REDUCE);
      const size_t all = kShapes.size();
      for (size_t p = all; p-- > (rank == failing ? all - marked : 0);)
        world.model->pass().mark_ready(static_cast<int32_t>(p));
      if (rank == failing) {
        abandon_backward(*world.model, "the loss is not a number");
      } else {
        expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(); },
                     {"rank " + std::to_string(failing) + " (host", "the loss is not a number"});
      }
      run_pass(world, rank, 1);
      world.expect_mean(size, 1, "the pass after");
      group.barrier();
    }
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, abandoning_after_the_last_mark_is_too_late, 3) {
  PassWorld world(group, Memory::kOwned);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { abandon_backward(*world.model, ""); });  // no pass is open
  world.fill(rank, 0);
  world.model->begin_backward(DDP_PASS_REDUCE);
  mark_all(*world.model);
  if (rank == 1)
    expect_error(DDP_ERROR_INVALID_STATE, [&] { abandon_backward(*world.model, "too late"); },
                 {"all gradients had been sent"});
  else
    world.model->end_backward();
  world.expect_mean(3, 0, "it ended well");
  world.model->begin_backward(DDP_PASS_ACCUMULATE);
  abandon_backward(*world.model, "an accumulation is this rank's own affair");
  run_pass(world, rank, 1);
  world.expect_mean(3, 1, "the pass after");
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, everybody_learns_of_a_last_pass_when_it_has_ended, 1, 2, 3, 4) {
  const int size = group.size();
  PassWorld world(group, Memory::kOwned);
  const int batches = rank == size / 2 ? 3 : 5;
  int pass = 0;
  for (bool last = false; !last; ++pass) {
    if (pass + 1 == batches) set_last_pass(*world.model);
    run_pass(world, rank, pass);
    world.expect_mean(size, pass, "pass " + std::to_string(pass));
    last = report_of(*world.model).last != 0;
  }
  expect(pass == 3, "all stop after the shortest rank's last batch");
  group.barrier();
  run_pass(world, rank, pass);
  expect(report_of(*world.model).last == 0, "it was said of one pass");
}
