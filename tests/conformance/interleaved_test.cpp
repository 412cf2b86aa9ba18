// SPDX-License-Identifier: Apache-2.0
// Several groups and models in one process: passes that are open at the same time on one group and on different groups,
// collectives of another group inside them, groups of fewer ranks, and models that threads drive side by side. Every result
// equals its result alone.

#include "conformance/pass_world.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

/// Sum over the ranks 0 to size - 1 of (rank + 1) * weight.
float ranks_sum(int size, int weight) { return static_cast<float>(size * (size + 1) / 2 * weight); }

void sum_on(group::Group& group, int rank, int weight) {
  std::vector<float> values(3001, static_cast<float>((rank + 1) * weight));
  group.all_reduce(flat_tensor(values.data(), DDP_F32, 3001), DDP_SUM);
  expect(values.front() == ranks_sum(group.size(), weight) && values.back() == values.front(), "the sum on another group");
}

ddp_model_options options_with(ddp_progress progress) {
  ddp_model_options options = model_options();
  options.progress = progress;
  return options;
}

ddp_case_on(kThreePaths, passes_of_two_groups_are_open_at_the_same_time) {
  for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
    run_at(path, 3, [&](const std::string& place, const ddp_group_options& options, int rank) {
      const auto a = group::Group::create((place + "#a").c_str(), options);
      const auto b = group::Group::create((place + "#b").c_str(), options);
      const auto c = group::Group::create((place + "#c").c_str(), options);
      PassWorld first(*a, Memory::kMixed, options_with(progress)), second(*b, Memory::kPrivate, options_with(progress));
      PassWorld third(*a, Memory::kOwned, options_with(progress));  // of the first's group
      for (int pass = 0; pass < 5; ++pass) {
        first.model->begin_backward(DDP_PASS_REDUCE);
        second.model->begin_backward(DDP_PASS_REDUCE);
        third.model->begin_backward(DDP_PASS_REDUCE);
        const std::vector<int32_t> order = order_of(rank, pass), other = order_of(rank + 7, pass);
        for (size_t i = 0; i < kShapes.size(); ++i) {
          first.fill(rank, pass, static_cast<size_t>(order[i]));
          first.model->pass().mark_ready(order[i]);
          if (i % 3 == 1) sum_on(*c, rank, static_cast<int>(i));  // while buckets of both are under way
          second.fill(rank, pass + 100, static_cast<size_t>(other[i]));
          second.model->pass().mark_ready(other[i]);
          third.fill(rank, pass + 200, static_cast<size_t>(order[i]));
          third.model->pass().mark_ready(order[i]);
        }
        (pass % 2 == 0 ? first : second).model->end_backward();
        sum_on(*c, rank, 5);
        (pass % 2 == 0 ? second : first).model->end_backward();
        first.expect_mean(3, pass, "first");
        second.expect_mean(3, pass + 100, "second");
        third.model->end_backward();
        third.expect_mean(3, pass + 200, "third");
        first.expect_mean(3, pass, "first is left alone");
      }
      a->barrier();
      b->barrier();
      c->barrier();
    });
}

ddp_case_on(kThreePaths, a_group_of_fewer_ranks_works_inside_a_pass_of_all) {
  run_at(path, 4, [&](const std::string& place, const ddp_group_options& options, int rank) {
    const auto all = group::Group::create((place + "#all").c_str(), options);
    ddp_group_options half = options;  // even and odd ranks
    half.world_size = 2;
    half.rank = rank / 2;
    const auto pair = group::Group::create((place + (rank % 2 == 0 ? "#even" : "#odd")).c_str(), half);
    PassWorld whole(*all, Memory::kOwned), part(*pair, Memory::kMixed);
    for (int pass = 0; pass < 3; ++pass) {
      whole.model->begin_backward(DDP_PASS_REDUCE);
      for (size_t p = kShapes.size(); p-- > 0;) {
        whole.fill(rank, pass, p);
        whole.model->pass().mark_ready(static_cast<int32_t>(p));
        if (p != 4) continue;
        part.fill(half.rank, pass + 50);
        part.reduce();
        part.expect_mean(2, pass + 50, "the pair");
      }
      whole.model->end_backward();
      whole.expect_mean(4, pass, "all");
    }
    pair->barrier();
    all->barrier();
  });
}

ddp_case_on(kThreePaths, threads_drive_models_of_their_own_groups) {
  constexpr int kThreads = 3;
  run_at(path, 2, [&](const std::string& place, const ddp_group_options& options, int rank) {
    run_ranks(kThreads, [&](int thread) {
      const auto group = group::Group::create((place + "#t" + std::to_string(thread)).c_str(), options);
      PassWorld world(*group, thread == 0 ? Memory::kOwned : Memory::kMixed,
                      options_with(thread == 1 ? DDP_PROGRESS_THREAD : DDP_PROGRESS_AUTO));
      for (int pass = 0; pass < 10; ++pass) {
        world.fill(rank, pass + thread * 1000);
        world.model->begin_backward(DDP_PASS_REDUCE);
        for (const int32_t p : order_of(rank, pass)) world.model->pass().mark_ready(p);
        world.model->end_backward();
        world.expect_mean(2, pass + thread * 1000, "thread " + std::to_string(thread));
      }
      group->barrier();
    });
  });
}

ddp_case_on(kThreePaths, a_group_that_breaks_leaves_the_others_alone) {
  run_at(path, 2, [](const std::string& place, const ddp_group_options& options, int rank) {
    const auto good = group::Group::create((place + "#good").c_str(), options);
    PassWorld world(*good, Memory::kOwned);
    {
      const auto bad = group::Group::create((place + "#bad").c_str(), options);
      good->barrier();  // `bad` is made on both ranks
      world.model->begin_backward(DDP_PASS_REDUCE);
      for (size_t p = kShapes.size(); p-- > 0;) {
        world.fill(rank, 4, p);
        world.model->pass().mark_ready(static_cast<int32_t>(p));
        if (p == 3 && rank == 0) bad->health().abort(Error(DDP_ERROR_ABORTED, "on purpose"));
        if (p == 2) (void)expect_error(DDP_ERROR_ABORTED, [&] { bad->barrier(); });
      }
    }
    world.model->end_backward();
    world.expect_mean(2, 4, "the good group");
    good->barrier();
  });
}
