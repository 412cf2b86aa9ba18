// SPDX-License-Identifier: Apache-2.0
// What a pass promises, on every transport (conformance/pass_test.cpp). The oracle is the public rule, written naively.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "model/gradients.hpp"
#include "model/model.hpp"
#include "model/replicas.hpp"
#include "os/clock.hpp"
#include "support/group_world.hpp"
#include "support/sum_oracle.hpp"

namespace ddp::test {

inline constexpr int kSizes[] = {1, 2, 3, 5, 8};

inline ddp_model_options model_options() {
  ddp_model_options options{};
  options.first_bucket_bytes = 4'000;
  options.bucket_bytes = 20'000;
  options.reduce = DDP_AVERAGE;
  return options;
}

/// Parameters of odd sizes, one larger than a bucket.
inline const std::vector<int64_t> kShapes = {1, 17, 1000, 3, 9000, 128, 77, 64};

enum class Memory { kOwned, kPrivate, kGroup, kMixed };

inline float gradient(int rank, int pass, size_t parameter, int64_t i) {
  std::minstd_rand random(static_cast<unsigned>(rank * 1'000'003 + pass * 1009 + static_cast<int>(parameter) * 31 + i + 1));
  random.discard(2);
  return static_cast<float>(random() % 20011) / 997.0F - 10.0F;
}

inline float mean(int size, int pass, size_t parameter, int64_t i) {
  std::vector<float> of_ranks;
  for (int rank = 0; rank < size; ++rank) of_ranks.push_back(gradient(rank, pass, parameter, i));
  return oracle_sum(of_ranks) / static_cast<float>(size);
}

/// One rank's model with gradients in the asked kind of memory.
struct PassWorld {
  std::vector<std::vector<float>> values, grads;
  std::unique_ptr<model::Model> model;

  PassWorld(group::Group& group, Memory memory, const ddp_model_options& options = model_options()) {
    // The caller keeps the group; the model only needs a pointer that does not own it.
    model = std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    for (size_t p = 0; p < kShapes.size(); ++p) {
      values.emplace_back(static_cast<size_t>(kShapes[p]), static_cast<float>(p));
      grads.emplace_back(static_cast<size_t>(kShapes[p]));
      const Tensor value = flat_tensor(values[p].data(), DDP_F32, kShapes[p]);
      Tensor grad = flat_tensor(grads[p].data(), DDP_F32, kShapes[p]);
      const bool in_group = memory == Memory::kGroup || (memory == Memory::kMixed && p % 3 == 0);
      if (in_group) grad.data = static_cast<std::byte*>(group.memory().alloc(grad.bytes()));
      const bool owned = memory == Memory::kOwned || (memory == Memory::kMixed && p % 3 == 1);
      model->add_parameter("p" + std::to_string(p), value, owned ? nullptr : &grad);
    }
    model->commit();
  }
  float* grad(size_t p) { return reinterpret_cast<float*>(model->table().parameter(static_cast<int32_t>(p)).grad.data); }
  void fill(int rank, int pass) {
    for (size_t p = 0; p < kShapes.size(); ++p) fill(rank, pass, p);
  }
  void fill(int rank, int pass, size_t p) {
    for (int64_t i = 0; i < kShapes[p]; ++i) grad(p)[i] = gradient(rank, pass, p, i);
  }
  void expect_mean(int size, int pass, const std::string& what) {
    for (size_t p = 0; p < kShapes.size(); ++p)
      for (int64_t i = 0; i < kShapes[p]; ++i) {
        const float wanted = mean(size, pass, p, i);
        if (std::memcmp(&wanted, &grad(p)[i], 4) != 0)
          throw std::runtime_error(what + ": parameter " + std::to_string(p) + " element " + std::to_string(i) + " is " +
                                   std::to_string(grad(p)[i]) + ", expected " + std::to_string(wanted));
      }
  }
};

inline std::vector<int32_t> order_of(int rank, int pass) {
  std::vector<int32_t> order(kShapes.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(static_cast<unsigned>(rank * 131 + pass));
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

inline void every_way_order_and_thread_gives_the_mean(const RunGroups& run_groups) {
  for (const int size : kSizes)
    for (const Memory memory : {Memory::kOwned, Memory::kPrivate, Memory::kGroup, Memory::kMixed})
      for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
        run_groups(size, [&](group::Group& group, int rank) {
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

inline void marks_from_several_threads_give_the_mean(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
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
  });
}

inline void accumulated_gradients_are_reduced_as_a_whole(const RunGroups& run_groups) {
  run_groups(2, [&](group::Group& group, int rank) {
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
  });
}

inline void a_forgotten_gradient_is_named_on_every_rank_and_training_goes_on(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
    PassWorld world(group, Memory::kOwned);
    world.fill(rank, 0);
    world.model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = 0; p < kShapes.size(); ++p)
      if (!(rank == 1 && (p == 2 || p == 5))) world.model->pass().mark_ready(static_cast<int32_t>(p));
    const std::string text = expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(); });
    expect_contains(text, "rank 1");
    expect_contains(text, "\"p2\"");
    expect_contains(text, "\"p5\"");
    expect(text.find("rank 0") == std::string::npos, text);
    world.fill(rank, 1);
    world.model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = 0; p < kShapes.size(); ++p) world.model->pass().mark_ready(static_cast<int32_t>(p));
    world.model->end_backward();
    world.expect_mean(3, 1, "the pass after");
  });
}

inline void gradients_that_nobody_uses_are_untouched(const RunGroups& run_groups) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate, Memory::kMixed})
    run_groups(3, [&](group::Group& group, int rank) {
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

inline void misuse_is_refused_and_harms_nothing(const RunGroups& run_groups) {
  run_groups(2, [&](group::Group& group, int rank) {
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
    expect_contains(expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->pass().mark_ready(3); }), "\"p3\"");
    world.model->end_backward();
    world.expect_mean(2, 0, "after misuse");
  });
}

inline void different_models_are_refused_with_the_first_difference(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
    model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), model_options());
    float a[6] = {};
    float b[6] = {};
    model.add_parameter("a", flat_tensor(a, DDP_F32, 6), nullptr);
    model.add_parameter(rank == 2 ? "c" : "b", flat_tensor(b, DDP_F32, rank == 2 ? 5 : 6), nullptr);
    const std::string text = expect_error(DDP_ERROR_MISMATCH, [&] { model.commit(); });
    expect_contains(text, "parameter 1 is \"b\" F32 [6] on ranks 0 and 1, but \"c\" F32 [5] on rank 2");
    group.barrier();  // the group is whole
  });
}

inline void commit_gives_everybody_the_values_of_rank_0(const RunGroups& run_groups) {
  run_groups(4, [&](group::Group& group, int rank) {
    model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), model_options());
    std::vector<float> value(70'000, static_cast<float>(rank + 1));
    int64_t counter = rank + 5;
    model.add_parameter("w", flat_tensor(value.data(), DDP_F32, 70'000), nullptr);
    model.add_buffer("n", flat_tensor(&counter, DDP_I64, 1));
    model.commit();
    expect(value.front() == 1.0F && value.back() == 1.0F && counter == 5, "rank 0's values");
    model.replicas().check();
    counter = rank == 3 ? 9 : 5;
    const std::string text = expect_error(DDP_ERROR_MISMATCH, [&] { model.replicas().check(); });
    expect_contains(text, "buffer \"n\"");
    expect_contains(text, "rank 3");
    group.barrier();
  });
}

inline void a_rank_that_left_after_the_last_pass_stops_no_local_work(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
    PassWorld world(group, Memory::kOwned);
    world.fill(rank, 0);
    world.model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = 0; p < kShapes.size(); ++p) world.model->pass().mark_ready(static_cast<int32_t>(p));
    world.model->end_backward();
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
    expect_contains(expect_error(DDP_ERROR_ABORTED, [&] { group.barrier(); }), "rank 2");
  });
}

/// All of the above by name.
inline constexpr Semantics kPassSemantics[] = {
    {"every_way_order_and_thread_gives_the_mean", &every_way_order_and_thread_gives_the_mean},
    {"marks_from_several_threads_give_the_mean", &marks_from_several_threads_give_the_mean},
    {"accumulated_gradients_are_reduced_as_a_whole", &accumulated_gradients_are_reduced_as_a_whole},
    {"a_forgotten_gradient_is_named_on_every_rank_and_training_goes_on",
     &a_forgotten_gradient_is_named_on_every_rank_and_training_goes_on},
    {"gradients_that_nobody_uses_are_untouched", &gradients_that_nobody_uses_are_untouched},
    {"misuse_is_refused_and_harms_nothing", &misuse_is_refused_and_harms_nothing},
    {"different_models_are_refused_with_the_first_difference", &different_models_are_refused_with_the_first_difference},
    {"commit_gives_everybody_the_values_of_rank_0", &commit_gives_everybody_the_values_of_rank_0},
    {"a_rank_that_left_after_the_last_pass_stops_no_local_work", &a_rank_that_left_after_the_last_pass_stops_no_local_work},
};

}  // namespace ddp::test
