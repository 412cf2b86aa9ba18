// SPDX-License-Identifier: Apache-2.0
// Hooks of a program's own, on every transport.
#include <complex>

#include "conformance/hook_world.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_hook_that_averages_gives_the_mean, 1, 2, 4) {
  for (const ddp_progress progress : {DDP_PROGRESS_AUTO, DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD}) {
    const HookWorld world(group, callback(average), progress);
    for (int pass = 0; pass < 3; ++pass) {
      world.run(rank, pass);
      world.expect_scaled_sum(group.size(), pass, static_cast<float>(group.size()), "size " + std::to_string(group.size()));
    }
  }
  group.barrier();
}

/// Sums by all-gather, by reduce-scatter and all-gather, and by way of one rank, bucket for bucket.
void every_collective(parts::HookBucket& bucket) {
  const Tensor whole = bucket.contents();
  auto* data = reinterpret_cast<float*>(whole.data);
  const auto size = static_cast<size_t>(bucket.size());
  const auto count = static_cast<size_t>(whole.count);
  std::vector<float> all(size * count);
  if (bucket.index() % 2 == 0) {
    bucket.all_gather(whole, flat_tensor(all.data(), DDP_F32, static_cast<int64_t>(all.size())));
    for (size_t i = 0; i < count; ++i) {
      std::vector<float> of_ranks;
      for (size_t rank = 0; rank < size; ++rank) of_ranks.push_back(all[rank * count + i]);
      data[i] = oracle_sum(of_ranks);
    }
  } else {
    const size_t part = (count + size - 1) / size;
    std::vector<float> padded(part * size), own(part);
    std::copy(data, data + count, padded.begin());
    bucket.reduce_scatter(flat_tensor(padded.data(), DDP_F32, static_cast<int64_t>(padded.size())),
                          flat_tensor(own.data(), DDP_F32, static_cast<int64_t>(part)), DDP_SUM);
    bucket.all_gather(flat_tensor(own.data(), DDP_F32, static_cast<int64_t>(part)),
                      flat_tensor(padded.data(), DDP_F32, static_cast<int64_t>(padded.size())));
    std::copy(padded.begin(), padded.begin() + static_cast<std::ptrdiff_t>(count), data);
    if (bucket.rank() != bucket.size() - 1) std::fill(data, data + count, 0.0F);
    bucket.broadcast(whole, bucket.size() - 1);
  }
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_hook_may_use_every_collective, 1, 4) {
  const HookWorld world(group, callback(every_collective));
  for (int pass = 0; pass < 2; ++pass) {
    world.run(rank, pass);
    world.expect_scaled_sum(group.size(), pass, 1.0F, "size " + std::to_string(group.size()));
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_hook_may_exchange_complex_numbers, 1, 3) {
  const auto size = static_cast<float>(group.size());
  const HookWorld world(group, callback([&](parts::HookBucket& bucket) {
                          using Number = std::complex<float>;
                          std::vector<Number> one{Number(1, -2)}, all(static_cast<size_t>(group.size()), Number(3, 4));
                          const auto tensor_of = [](std::vector<Number>& numbers) {
                            return flat_tensor(numbers.data(), DDP_C64, static_cast<int64_t>(numbers.size()));
                          };
                          expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { bucket.all_reduce(tensor_of(one), DDP_MAX); });
                          bucket.all_reduce(tensor_of(one), DDP_SUM);
                          expect(one[0] == Number(size, -2 * size), "the sum");
                          bucket.all_gather(tensor_of(one), tensor_of(all));
                          expect(all.back() == one[0], "what the last rank gives");
                          bucket.reduce_scatter(tensor_of(all), tensor_of(one), DDP_AVERAGE);
                          expect(one[0] == all[0], "the mean");
                          bucket.broadcast(tensor_of(one), 0);
                          expect(one[0] == all[0], "of rank 0");
                          average(bucket);
                        }));
  world.run(rank, 0);
  world.expect_scaled_sum(group.size(), 0, size, "size " + std::to_string(group.size()));
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_hook_that_fails_on_one_rank_voids_the_pass_on_all, 3) {
  for (const int when : {0, 1, 2}) {  // before its collective, between two, after the last
    bool fails = true;
    const HookWorld world(group, callback([&](parts::HookBucket& bucket) {
                            const bool here = fails && rank == 1 && bucket.index() == 1;
                            for (int step = 0; step < 3; ++step) {
                              if (here && step == when) throw Error(DDP_ERROR_CALLBACK, "the quantiser has no table");
                              if (step < 2) bucket.all_reduce(bucket.contents(), step == 0 ? DDP_AVERAGE : DDP_MAX);
                            }
                          }));
    expect_error(DDP_ERROR_CALLBACK, [&] { world.run(rank, 0); }, {"rank 1", "bucket 1", "the quantiser has no table"});
    group.barrier();  // the group is whole
    if (when == 0) {
      const HookWorld poor(group, callback([&](parts::HookBucket&) {
                             if (rank == 2) throw std::bad_alloc();
                           }));
      expect_error(DDP_ERROR_CALLBACK, [&] { poor.run(rank, 0); }, {"out of memory"});
    }
    fails = false;
    world.run(rank, 1);
    world.expect_scaled_sum(3, 1, 3.0F, "the pass after");
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, hooks_that_do_different_things_are_a_mismatch_and_the_group_stays, 3) {
  int pass = 0;
  const HookWorld world(group, callback([&](parts::HookBucket& bucket) {
                          if (pass == 0 && rank == 2 && bucket.index() == 2) return;
                          if (pass == 1 && rank == 0) return bucket.broadcast(bucket.contents(), 1);
                          average(bucket);
                        }));
  std::string text =
      expect_error(DDP_ERROR_MISMATCH, [&] { world.run(rank, 0); }, {"all-reduce", "end of the hook in bucket 2"});
  pass = 1;
  text = expect_error(DDP_ERROR_MISMATCH, [&] { world.run(rank, 1); });
  expect_contains(text, "broadcast");
  pass = 2;
  world.run(rank, 2);
  world.expect_scaled_sum(3, 2, 3.0F, "the pass after");
  group.barrier();
}

/// Marks and pulls in turn, then pulls the rest.
void pull(const HookWorld& world, const HookBody& body, bool early) {
  for (size_t p = kHookShapes.size(); p-- > 0;) {
    world.model->pass().mark_ready(static_cast<int32_t>(p));
    while (early) {
      const auto bucket = model::next_bucket(*world.model, false);
      if (bucket == nullptr) break;
      body(*bucket);
      model::finish_bucket(*world.model, std::nullopt);
    }
  }
  while (const auto bucket = model::next_bucket(*world.model, true)) {
    body(*bucket);
    model::finish_bucket(*world.model, std::nullopt);
  }
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, pulled_buckets_give_the_mean, 1, 3) {
  const HookWorld world(group, pulled());
  for (int pass = 0; pass < 4; ++pass) {
    world.fill(rank, pass);
    world.model->begin_backward(DDP_PASS_REDUCE);
    pull(world, average, (rank + pass) % 2 == 0);
    world.model->end_backward();
    world.expect_scaled_sum(group.size(), pass, static_cast<float>(group.size()), "pulled");
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, what_is_wrong_with_a_pulled_bucket_is_told_to_all, 3) {
  const HookWorld world(group, pulled());
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)model::next_bucket(*world.model, true); });
  world.mark(rank, 0);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { model::finish_bucket(*world.model, std::nullopt); });
  const auto first = model::next_bucket(*world.model, true);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)model::next_bucket(*world.model, true); });
  average(*first);
  const auto problem = rank == 2 ? std::optional<Error>(Error(DDP_ERROR_CALLBACK, "out of ideas")) : std::nullopt;
  expect_error(DDP_ERROR_CALLBACK, [&] { model::finish_bucket(*world.model, problem); }, {"out of ideas"});
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { first->require_open("the test"); });
  expect(model::next_bucket(*world.model, true) == nullptr, "nothing more comes in a pass that failed");
  expect_error(DDP_ERROR_CALLBACK, [&] { world.model->end_backward(); }, {"rank 2"});

  world.mark(rank, 1);  // rank 0 forgets to pull
  std::string text;
  if (rank == 0) {
    text = expect_error(DDP_ERROR_CALLBACK, [&] { world.model->end_backward(); });
  } else {
    const auto bucket = model::next_bucket(*world.model, true);
    (void)expect_error(DDP_ERROR_CALLBACK, [&] { average(*bucket); });
    (void)expect_error(DDP_ERROR_CALLBACK, [&] { model::finish_bucket(*world.model, std::nullopt); });
    text = expect_error(DDP_ERROR_CALLBACK, [&] { world.model->end_backward(); });
  }
  expect_contains(text, "rank 0");
  expect_contains(text, "ddp_model_next_bucket until it gives NULL");

  world.fill(rank, 2);
  world.model->begin_backward(DDP_PASS_REDUCE);
  pull(world, average, true);
  world.model->end_backward();
  world.expect_scaled_sum(3, 2, 3.0F, "after two void passes");
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, missing_and_unused_gradients_keep_their_promises, 3) {
  int calls = 0;
  const HookWorld strict(group, callback([&](parts::HookBucket& bucket) {
                           ++calls;
                           average(bucket);
                         }));
  strict.fill(rank, 0);
  strict.model->begin_backward(DDP_PASS_REDUCE);
  for (int32_t p = 0; p < strict.model->table().parameter_count(); ++p)
    if (rank != 1 || p != 4) strict.model->pass().mark_ready(p);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { strict.model->end_backward(); }, {"rank 1 did not mark \"p4\""});
  calls = 0;
  strict.run(rank, 1);
  strict.expect_scaled_sum(3, 1, 3.0F, "the pass after");
  ddp_model_stats stats{};
  strict.model->passes().meter().fill(stats);
  expect_equal(int64_t{calls}, stats.buckets, "the hook runs once a bucket");

  const HookWorld mild(group, callback(average), DDP_PROGRESS_AUTO, DDP_UNUSED_ALLOW);
  mild.fill(rank, 2);
  mild.model->begin_backward(DDP_PASS_ACCUMULATE);
  if (rank == 2) mild.model->pass().mark_ready(2);
  mild.model->end_backward();
  mild.model->begin_backward(DDP_PASS_REDUCE);
  if (rank == 0) mild.model->pass().mark_ready(1);
  mild.model->end_backward();
  for (const size_t p : {size_t{1}, size_t{2}})
    for (int64_t i = 0; i < kHookShapes[p]; ++i) expect(mild.grad(p)[i] == sum_over(3, 2, p, i) / 3.0F, "used on one rank");
  for (const size_t p : {size_t{0}, size_t{4}})
    for (int64_t i = 0; i < kHookShapes[p]; ++i)
      expect(mild.grad(p)[i] == gradient(rank, 2, p, i), "used on none: untouched");
  expect(mild.model->pass().results().was_used(1) && mild.model->pass().results().was_used(2) &&
             !mild.model->pass().results().was_used(4),
         "who was used");
  group.barrier();
}

/// Batches of ranks 0, 1, 2: the last two run out of data. Weights 1, 3 and 0.5; divided by the weights of those that take
/// part.
ddp_case_on(kEveryHostPath, weights_and_ranks_without_data_count_the_same_with_hooks) {
  for (const bool own : {true, false})
    run_if_enough_on(path, 3, [&](group::Group& group, int rank) {
      constexpr float kWeights[] = {1.0F, 3.0F, 0.5F};
      constexpr int kBatches[] = {4, 3, 1};
      ddp_model_options options{.first_bucket_bytes = 2'000,
                                .bucket_bytes = 2'000,
                                .reduce = DDP_AVERAGE,
                                .divisor = DDP_DIVISOR_WEIGHTS,
                                .uneven_inputs = 1};
      model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
      model.set_hook(own ? callback(average) : parts::Hook::sent_as(DDP_BF16));
      std::vector<float> values(900), more(70);
      model.add_parameter("a", flat_tensor(values.data(), DDP_F32, 900), nullptr);
      model.add_parameter("b", flat_tensor(more.data(), DDP_F32, 70), nullptr);
      model.commit();
      set_weight(model, static_cast<double>(kWeights[rank]));
      for (int pass = 0; pass < kBatches[rank]; ++pass) {
        model.begin_backward(DDP_PASS_REDUCE);
        for (const int32_t p : {1, 0}) {
          const Tensor grad = model.table().parameter(p).grad;
          for (int64_t i = 0; i < grad.count; ++i)
            reinterpret_cast<float*>(grad.data)[i] = static_cast<float>((i % 8) * 12 * (rank + 1) + pass);
          model.pass().mark_ready(p);
        }
        model.end_backward();
        float weights = 0;
        for (int of = 0; of < 3; ++of) weights += pass < kBatches[of] ? kWeights[of] : 0;
        for (const int32_t p : {0, 1}) {
          const Tensor grad = model.table().parameter(p).grad;
          for (int64_t i = 0; i < grad.count; ++i) {
            float sum = 0;
            for (int of = 0; of < 3; ++of)
              if (pass < kBatches[of]) sum += kWeights[of] * static_cast<float>((i % 8) * 12 * (of + 1) + pass);
            const float got = reinterpret_cast<const float*>(grad.data)[i];
            const float tolerance = (own ? 1e-6F : 0.02F) * (sum / weights) + 1e-6F;  // F32, or three roundings to 8 bits
            expect(std::fabs(got - sum / weights) <= tolerance, "pass " + std::to_string(pass) + " element " +
                                                                    std::to_string(i) + " is " + std::to_string(got) +
                                                                    ", expected " + std::to_string(sum / weights));
          }
        }
      }
      join(model);
      group.barrier();
    });
}
