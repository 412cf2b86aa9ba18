// SPDX-License-Identifier: Apache-2.0
// The pass, on every transport, and the reports that other ranks get when a rank is killed or stopped.

#include "conformance/pass_world.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

ddp_case_on(kEveryHostPath, every_way_order_and_thread_gives_the_mean) {
  for (const int size : kSizes)
    for (const Memory memory : {Memory::kOwned, Memory::kPrivate, Memory::kGroup, Memory::kMixed})
      for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
        run_if_enough_on(path, size, [&](group::Group& group, int rank) {
          ddp_model_options options = model_options();
          options.progress = progress;
          PassWorld world(group, memory, options);
          for (int pass = 0; pass < 6; ++pass) {
            world.model->begin_backward(DDP_PASS_REDUCE);
            for (const int32_t p : order_of(rank, pass)) {
              world.fill(rank, pass, static_cast<size_t>(p));
              world.model->pass().mark_ready(p);
            }
            world.model->end_backward();
            world.expect_mean(size, pass,
                              "size " + std::to_string(size) + ", memory " + std::to_string(static_cast<int>(memory)) +
                                  ", pass " + std::to_string(pass));
          }
          group.barrier();
        });
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, marks_from_several_threads_give_the_mean, 3) {
  PassWorld world(group, Memory::kMixed);
  for (int pass = 0; pass < 20; ++pass) {
    world.fill(rank, pass);
    world.model->begin_backward(DDP_PASS_REDUCE);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (size_t p = static_cast<size_t>(t); p < kShapes.size(); p += 3)
          world.model->pass().mark_ready(static_cast<int32_t>(p));
      });
    for (std::thread& thread : threads) thread.join();
    world.model->end_backward();
    world.expect_mean(3, pass, "pass " + std::to_string(pass));
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, accumulated_gradients_are_reduced_as_a_whole, 2) {
  PassWorld world(group, Memory::kOwned);
  world.model->gradients().zero();
  for (int step = 0; step < 3; ++step) {
    world.model->begin_backward(step < 2 ? DDP_PASS_ACCUMULATE : DDP_PASS_REDUCE);
    for (size_t p = kShapes.size(); p-- > 0;) {
      for (int64_t i = 0; i < kShapes[p]; ++i) world.grad(p)[i] += static_cast<float>(rank + 1);
      world.model->pass().mark_ready(static_cast<int32_t>(p));
    }
    world.model->end_backward();
    if (step < 2)
      expect(world.grad(0)[0] == static_cast<float>((rank + 1) * (step + 1)), "an accumulation pass sends nothing");
  }
  for (size_t p = 0; p < kShapes.size(); ++p) expect(world.grad(p)[0] == 4.5F, "mean of 3 and 6");
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_forgotten_gradient_is_named_on_every_rank_and_training_goes_on, 3) {
  PassWorld world(group, Memory::kOwned);
  world.fill(rank, 0);
  world.model->begin_backward(DDP_PASS_REDUCE);
  for (size_t p = 0; p < kShapes.size(); ++p)
    if (!(rank == 1 && (p == 2 || p == 5))) world.model->pass().mark_ready(static_cast<int32_t>(p));
  const std::string text =
      expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(); }, {"rank 1", "\"p2\"", "\"p5\""});
  expect(text.find("rank 0") == std::string::npos, text);
  world.run(rank, 1);
  world.expect_mean(3, 1, "the pass after");
}

ddp_case_on(kEveryHostPath, gradients_that_nobody_uses_are_untouched) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate, Memory::kMixed})
    run_if_enough_on(path, 3, [&](group::Group& group, int rank) {
      ddp_model_options options = model_options();
      options.unused = DDP_UNUSED_ALLOW;
      PassWorld world(group, memory, options);
      world.fill(rank, 0);
      world.model->begin_backward(DDP_PASS_REDUCE);
      for (size_t p = 0; p < kShapes.size(); ++p) {
        if (p == 4) continue;                                             // used by no rank
        if (p == 2 && rank != 1) {                                        // rank 1 only
          for (int64_t i = 0; i < kShapes[p]; ++i) world.grad(p)[i] = 0;  // contributes zero
          world.model->pass().mark_unused(2);
          continue;
        }
        world.model->pass().mark_ready(static_cast<int32_t>(p));
      }
      world.model->end_backward();
      for (int64_t i = 0; i < kShapes[4]; ++i)
        expect(world.grad(4)[i] == gradient(rank, 0, 4, i), "unused everywhere: untouched");
      for (int64_t i = 0; i < kShapes[2]; ++i)
        expect(world.grad(2)[i] == (0.0F + gradient(1, 0, 2, i)) / 3.0F, "used on one rank: mean with zeros");
      expect(!world.model->pass().results().was_used(4) && world.model->pass().results().was_used(2) &&
                 world.model->pass().results().was_used(0),
             "was_used");
    });
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, misuse_is_refused_and_harms_nothing, 2) {
  PassWorld world(group, Memory::kPrivate);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->pass().mark_ready(0); });
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(); });
  world.fill(rank, 0);
  world.model->begin_backward(DDP_PASS_REDUCE);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->begin_backward(DDP_PASS_REDUCE); });
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { group.barrier(); });
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->gradients().zero(); });
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->pass().mark_unused(0); });
  for (size_t p = 0; p < kShapes.size(); ++p) world.model->pass().mark_ready(static_cast<int32_t>(p));
  expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->pass().mark_ready(3); }, {"\"p3\""});
  world.model->end_backward();
  world.expect_mean(2, 0, "after misuse");
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, different_models_are_refused_with_the_first_difference, 3) {
  model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), model_options());
  float a[6] = {};
  float b[6] = {};
  model.add_parameter("a", flat_tensor(a, DDP_F32, 6), nullptr);
  model.add_parameter(rank == 2 ? "c" : "b", flat_tensor(b, DDP_F32, rank == 2 ? 5 : 6), nullptr);
  expect_error(DDP_ERROR_MISMATCH, [&] { model.commit(); },
               {"parameter 1 is \"b\" F32 [6] on ranks 0 and 1, but \"c\" F32 [5] on rank 2"});
  group.barrier();  // the group is whole
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, commit_gives_everybody_the_values_of_rank_0, 4) {
  model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), model_options());
  std::vector<float> value(70'000, static_cast<float>(rank + 1));
  int64_t counter = rank + 5;
  model.add_parameter("w", flat_tensor(value.data(), DDP_F32, 70'000), nullptr);
  model.add_buffer("n", flat_tensor(&counter, DDP_I64, 1));
  model.commit();
  expect(value.front() == 1.0F && value.back() == 1.0F && counter == 5, "rank 0's values");
  model.replicas().check();
  counter = rank == 3 ? 9 : 5;
  expect_error(DDP_ERROR_MISMATCH, [&] { model.replicas().check(); }, {"buffer \"n\"", "rank 3"});
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_rank_that_left_after_the_last_pass_stops_no_local_work, 3) {
  PassWorld world(group, Memory::kOwned);
  world.run(rank, 0);
  if (rank == 2) return;  // leaves
  const int64_t limit = os::now_ns() + 20'000'000'000;
  for (bool left = false; !left;) {
    try {
      group.health().check_usable();
      expect(os::now_ns() < limit, "the others learn of it");
    } catch (const Error& error) {
      expect_contains(error.text(), "rank 2");
      left = true;
    }
  }
  group.health().check_no_fault();  // an optimizer may step
  world.expect_mean(3, 0, "what was reduced stays");
  expect_error(DDP_ERROR_ABORTED, [&] { group.barrier(); }, {"rank 2"});
}

ddp_group_options options_of(ddp_backend backend) {
  ddp_group_options options = world_options();
  options.backend = backend;
  return options;
}

/// Rank 1 of 4, in the middle of training: the others name it soon, with one text.
void hit_in_training(ddp_backend backend, int number, double limit_seconds) {
  ddp_group_options options = options_of(backend);
  options.heartbeat_ms = 50;
  options.dead_after_ms = number == SIGSTOP ? 600 : 10'000;
  const HitRank hit = hit_rank_1(
      4, options,
      [](group::Group& group, int, Reporter& report) {
        PassWorld world(group, Memory::kOwned);
        const std::string text = expect_error(DDP_ERROR_PEER_FAILED, [&] {
          for (int pass = 0;; ++pass) {
            world.reduce();
            if (pass == 5) report.say("training");
          }
        });
        expect(text == expect_error(DDP_ERROR_PEER_FAILED, [&] { group.barrier(); }), "the first cause is repeated");
        return text;
      },
      number);
  for (const std::string& text : hit.texts)
    expect(text == hit.texts.front(), "the same cause on all ranks: " + text + " / " + hit.texts.front());
  expect(hit.seconds < limit_seconds, "told within " + std::to_string(hit.seconds) + " s");
}

ddp_case(a_killed_rank_is_named_over_shared_memory) {
  for (int i = 0; i < 5; ++i) hit_in_training(DDP_BACKEND_SHM, SIGKILL, 1.0 + 2.0);
}
ddp_case(a_killed_rank_is_named_over_gloo) {
  if (!has_gloo()) return;
  for (int i = 0; i < 5; ++i) hit_in_training(DDP_BACKEND_GLOO, SIGKILL, 1.0 + 2.0);
}
ddp_case(a_stopped_rank_is_named_over_shared_memory) { hit_in_training(DDP_BACKEND_SHM, SIGSTOP, 5.0); }

ddp_case(the_process_makes_a_new_group_after_a_failure) {
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter& report) {
    {
      const auto group = join_process_group(folder, rank, 3, options_of(DDP_BACKEND_AUTO));
      report.say("first");
      if (rank == 2) {
        for (;;) pause();
      }
      (void)expect_error(DDP_ERROR_PEER_FAILED, [&] { group->barrier(); });
    }
    ddp_group_options options = options_of(DDP_BACKEND_AUTO);
    options.rank = rank;
    options.world_size = 2;
    const auto group = group::Group::create(("file://" + folder.path() + "/again").c_str(), options);
    PassWorld world(*group, Memory::kOwned);
    for (int pass = 0; pass < 10; ++pass) {
      world.run(rank, pass);
      world.expect_mean(2, pass, "after the failure");
    }
    group->barrier();
    return std::string("trained on");
  });
  for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "first");
  procs.signal(2, SIGKILL);
  for (const int rank : {0, 1}) {
    const ProcResult& result = procs.wait_one(rank);
    expect(result.text == "trained on", result.describe());
  }
}
