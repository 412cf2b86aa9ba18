// SPDX-License-Identifier: Apache-2.0
// A model with several optimizers has the bits of several models with one optimizer each, on every path, wherever the steps
// are made; a void pass and a gradient that is not finite concern all of them; their states are saved and loaded together.
#include "conformance/step_bits.hpp"
#include "model/uneven.hpp"
#include "support/check.hpp"

constexpr int kSteps = 4;

const std::vector<int32_t> kMatrices = {1, 3, 6};  // of which one is split over buckets

/// Bits of `way`: shard and in_backward of the first optimizer, then of the second.
Ways ways_of(int way) {
  Ways ways;
  ways.steppers = {Stepper(Rule::kMomentum, kMatrices, (way & 1) != 0, (way & 2) != 0),
                   Stepper(Rule::kAdamW, {}, (way & 4) != 0, (way & 8) != 0)};
  return ways;
}

/// For each optimizer a model of its parameters alone, with the same rule in the ordinary way, in host memory.
class Apart {
 public:
  Apart(group::Group& group, const Ways& ways) {
    std::vector<int32_t> left(kFusedShapes.size());
    std::iota(left.begin(), left.end(), 0);
    for (const Stepper& each : ways.steppers)
      for (const int32_t number : each.parameters) left.erase(std::find(left.begin(), left.end(), number));
    for (const Stepper& each : ways.steppers) {
      Ways alone;
      alone.home = Home::kHost;
      alone.numbers = each.parameters.empty() ? left : each.parameters;
      alone.steppers = {each};
      Stepper& stepper = alone.steppers.front();
      stepper.parameters.clear();
      stepper.shard = stepper.in_backward = stepper.late_values = stepper.whole_tensors = stepper.divide_in_step = false;
      worlds_.push_back(std::make_unique<Training>(group, alone));
    }
  }
  void pass(int rank, int step, const std::set<int32_t>& unused = {}) {
    for (const auto& each : worlds_) each->pass(rank, step, unused);
  }
  void step() {
    for (const auto& each : worlds_) each->step();
  }
  void train(int rank, int number) { pass(rank, number), step(); }
  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (size_t p = 0; p < kFusedShapes.size(); ++p)
      for (const auto& each : worlds_) all += each->bytes_of(static_cast<int32_t>(p));
    return all;
  }

 private:
  std::vector<std::unique_ptr<Training>> worlds_;
};

checkpoint::Parts parts_of(const Training& world) {
  std::vector<model::ReplicaState*> all;
  for (const auto& each : world.optimizers) all.push_back(each.get());
  return {*world.model, checkpoint::Optimizers(all)};
}

/// In step 2 no rank uses a parameter of each optimizer.
template <class World>
std::string train(group::Group& group, World& world, int first = 0, int end = kSteps) {
  for (int step = first; step < end; ++step) {
    world.pass(group.rank(), step, step == 2 ? std::set<int32_t>{1, 7} : std::set<int32_t>{});
    world.step();
  }
  return world.bytes();
}

const std::vector<int> kSomeWays = {1, 2 + 8, 1 + 2 + 4, 1 + 2 + 4 + 8};

template <class Change>
void expect_bits_of_models_apart(Path path, const std::vector<int>& sizes, const std::vector<int>& all_ways,
                                 const Change& change) {
  for (const int size : sizes)
    run_on(path, size, [&](group::Group& group, int) {
      for (const int way : all_ways) {
        Ways ways = ways_of(way);
        change(ways);
        Apart apart(group, ways);
        const std::string wanted = train(group, apart);
        Training world(group, ways);
        const std::string got = train(group, world);
        expect_same_everywhere(group, got, "the model");
        for (const auto& each : world.optimizers) expect_equal(each->step_count(), int64_t{kSteps}, "steps");
        expect(got == wanted, "the bits of models apart, way " + std::to_string(way) + ", size " + std::to_string(size));
      }
    });
}

ddp_case_on(kEveryPath, each_optimizer_has_the_bits_of_a_model_of_its_own) {
  std::vector<int> all(16);
  std::iota(all.begin(), all.end(), 0);
  expect_bits_of_models_apart(path, {1, 3}, all, [](Ways&) {});
}

ddp_case_on(kThreeAndGpus, values_of_the_library_have_the_same_bits) {
  expect_bits_of_models_apart(path, {3}, kSomeWays, [](Ways& ways) { ways.own_values = true; });
}

ddp_case_on(kThreeAndGpus, a_lane_and_private_gradients_have_the_same_bits) {
  expect_bits_of_models_apart(path, {2}, kSomeWays, [](Ways& ways) {
    ways.progress = DDP_PROGRESS_THREAD;
    ways.owned_grads = false;
  });
}

ddp_case_on(kEveryHostPath, a_rule_for_whole_tensors_has_the_same_bits) {
  expect_bits_of_models_apart(path, {1, 3}, kSomeWays, [](Ways& ways) {
    ways.steppers[0].custom = true;
    ways.steppers[0].whole_tensors = true;
  });
}

/// The norm is that of the optimizer's own parameters, and the other one still steps in the pass.
ddp_case_on(kThreeAndGpus, clipping_is_by_the_norm_of_the_own_parameters) {
  expect_bits_of_models_apart(path, {1, 3}, kSomeWays, [](Ways& ways) { ways.steppers[0].max_norm = 3; });
}

/// On a GPU one optimizer divides sums in its step, while the gradients of the other one are means, or sums until its step.
ddp_case_on(Paths{Path::kGpu}, sums_are_divided_by_the_own_step) {
  for (const int way : {1, 2, 3})
    expect_bits_of_models_apart(path, {2}, {0}, [way](Ways& ways) {
      ways.steppers[0].divide_in_step = (way & 1) != 0;
      ways.steppers[1].divide_in_step = (way & 2) != 0;
    });
}

ddp_case_on(kThreeAndGpus, three_optimizers_take_turns_in_the_list_of_parameters) {
  expect_bits_of_models_apart(path, {3}, kSomeWays, [](Ways& ways) {
    ways.steppers[0].parameters = {0, 3, 6};
    ways.steppers.emplace_back(Rule::kAdamW, std::vector<int32_t>{1, 4, 7}, ways.steppers[1].in_backward,
                               ways.steppers[0].shard);
    std::swap(ways.steppers[1], ways.steppers[2]);
  });
}

ddp_case_on(kThreeAndGpus, an_optimizer_steps_in_the_pass_while_another_one_waits) {
  run_on(path, 2, [](group::Group& group, int rank) {
    Ways ways = ways_of(2 + 8);
    ways.steppers[0].max_norm = 3;
    Training world(group, ways);
    world.train(rank, 0);
    const std::string before = world.bytes();
    const std::string matrix = world.bytes_of(1), bias = world.bytes_of(0);
    world.pass(rank, 1);
    expect(world.bytes_of(1) == matrix, "what waits for the norm has not changed");
    expect(world.bytes_of(0) != bias, "the other optimizer has stepped in the pass");
    expect_error(DDP_ERROR_INVALID_STATE, [&] { world.pass(rank, 2); }, {"optimizer 1 (adam)"});
    world.step();
    expect(world.bytes_of(1) != matrix && world.bytes() != before, "it steps when it is asked");
  });
}

/// All optimizers that have stepped in it take their steps back.
ddp_case_on(kThreeAndGpus, a_void_pass_is_taken_back_by_all) {
  run_on(path, 3, [](group::Group& group, int rank) {
    for (const int way : {2 + 8, 1 + 2 + 8, 1 + 2 + 4 + 8, 1 + 4}) {
      Ways ways = ways_of(way);
      ways.steppers[0].custom = ways.steppers[0].whole_tensors = way == 1 + 2 + 8 && !Training::is_on_gpus();
      Apart apart(group, ways);
      Training world(group, ways);
      static_cast<void>(train(group, apart, 0, 2));
      expect(train(group, world, 0, 2) == apart.bytes(), "before");
      const std::string before = world.bytes();
      const std::set<int32_t> missing = rank == 1 ? std::set<int32_t>{0} : std::set<int32_t>{};
      world.model->begin_backward(DDP_PASS_REDUCE);
      world.mark({}, missing);
      if (rank == 1) {
        abandon_backward(*world.model, "a test", world.stream());
      } else {
        static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(world.stream()); }));
      }
      expect(world.bytes() == before, "the void pass is taken back, way " + std::to_string(way));
      static_cast<void>(train(group, apart, 2, kSteps));
      expect(train(group, world, 2, kSteps) == apart.bytes(), "behind it, way " + std::to_string(way));
    }
  });
}

ddp_case_on(kThreeAndGpus, a_loss_scale_is_that_of_the_model) {
  for (const int way : {0, 1, 1 + 4, 2 + 8})
    run_on(path, 3, [way](group::Group& group, int rank) {
      Ways ways = ways_of(way);
      Apart apart(group, ways);
      Training world(group, ways);
      world.set_loss_scale(256, 2, 1);
      double now = 256;
      for (int step = 0; step < 6; ++step) {
        for (const auto& each : world.optimizers) expect_equal(each->loss_scale(), now, "the scale of each optimizer");
        const int32_t spoiled = step == 1 ? 6 : step == 3 ? 7 : -1;  // of the first, then of the second optimizer
        const std::string before = world.bytes();
        world.scale = now;
        world.fill(rank, step);
        if (spoiled >= 0 && rank == 0) world.set_grad(spoiled, 0, std::numeric_limits<double>::infinity());
        world.reduce();
        world.step();
        if (spoiled >= 0) {
          expect(world.bytes() == before, "no optimizer has stepped");
          now /= 2;
          continue;
        }
        if (step == 5) now *= 2;
        apart.train(rank, step);
        expect(world.bytes() == apart.bytes(),
               "a scale that is a power of two changes no bit, step " + std::to_string(step));
      }
      for (const auto& each : world.optimizers) {
        expect_equal(each->skipped_count(), int64_t{2}, "skipped");
        expect_equal(each->step_count(), int64_t{4}, "steps");
        expect_equal(each->loss_scale(), now, "the scale at the end");
      }
      world.scale = now;
      world.pass(rank, 6);
      world.optimizers[0]->step(world.stream());
      world.pass(rank, 7);
      expect_error(DDP_ERROR_INVALID_STATE, [&] { world.optimizers[0]->step(world.stream()); },
                   {"optimizer 1 (adam) has left out a step"});
    });
}

/// The norm over all gradients, of slices and of whole ones, and with it a clipped step.
ddp_case_on(kThreeAndGpus, norms_of_the_model_are_over_all_optimizers) {
  run_on(path, 3, [](group::Group& group, int rank) {
    Ways on_host = ways_of(0);
    on_host.home = Home::kHost;
    Training plain(group, on_host);
    double norms[3] = {};
    for (const int way : {0, 1, 4, 1 + 4}) {
      Training world(group, ways_of(way));
      for (int step = 0; step < 2; ++step) {
        world.pass(rank, step);
        if (step == 0) world.step();
      }
      const double found[] = {world.model->gradients().norm(1, world.stream()),
                              world.model->gradients().norm(2, world.stream()),
                              world.model->gradients().norm(INFINITY, world.stream())};
      for (int k = 0; k < 3; ++k) {
        if (way == 0) norms[k] = found[k];
        expect_equal(found[k], norms[k], "norm " + std::to_string(k) + ", way " + std::to_string(way));
      }
    }
    plain.pass(rank, 0);
    double sum = 0;
    for (const Parameter& each : plain.model->table().parameters())
      for (int64_t i = 0; i < each.grad.count; ++i) {
        const double element = reinterpret_cast<const float*>(each.grad.data)[i];
        sum += element * element;
      }
    const double norm = plain.model->gradients().norm(2);
    expect(std::abs(norm - std::sqrt(sum)) < 1e-9 * norm, "the norm by hand");
  });
}

ddp_case_on(kThreePaths, states_are_saved_and_loaded_together) {
  for (const int way : {0, 1, 1 + 4, 1 + 2 + 4 + 8})
    run_on(path, 3, [way](group::Group& group, int rank) {
      Training world(group, ways_of(way));
      static_cast<void>(train(group, world, 0, 2));
      const std::string file = saved_bytes(parts_of(world));
      if (rank == 0) expect(!file.empty(), "a file");
      const std::string wanted = train(group, world, 2, kSteps);
      for (const int other : {0, 1 + 4, 2 + 8}) {
        Training again(group, ways_of(other));
        load_bytes(parts_of(again), file);
        expect_equal(again.optimizers[1]->step_count(), int64_t{2}, "steps of the file");
        expect(train(group, again, 2, kSteps) == wanted, "the bits of the file on the way " + std::to_string(other));
      }
      Ways swapped = ways_of(0);
      std::swap(swapped.steppers[0].rule, swapped.steppers[1].rule);
      Training wrong(group, swapped);
      expect_error(DDP_ERROR_MISMATCH, [&] { load_bytes(parts_of(wrong), file); }, {"as number 0"});
      Ways one = ways_of(0);
      one.steppers = {Stepper(Rule::kAdamW)};
      Training fewer(group, one);
      expect_error(DDP_ERROR_MISMATCH, [&] { load_bytes(parts_of(fewer), file); }, {"2 optimizers, but 1"});
      Ways others = ways_of(0);
      others.steppers[0].parameters = {1, 3};
      Training moved(group, others);
      static_cast<void>(expect_error(DDP_ERROR_MISMATCH, [&] { load_bytes(parts_of(moved), file); }));
    });
}

ddp_case_on(kThreePaths, ranks_with_other_lists_are_told_at_commit) {
  run_at(path, 2, [](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    Ways ways = ways_of(2);
    if (rank == 1) ways.steppers[0].parameters = {1, 3};
    expect_error(DDP_ERROR_MISMATCH, [&] { Training world(*group, ways); }, {"the optimizer of parameter"});
    Ways shards = ways_of(2);
    shards.steppers[0].shard = rank == 1;
    expect_error(DDP_ERROR_MISMATCH, [&] { Training world(*group, shards); }, {"shard"});
    group->barrier();
  });
}
