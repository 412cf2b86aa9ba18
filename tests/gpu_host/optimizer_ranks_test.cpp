// SPDX-License-Identifier: Apache-2.0
// Sharded steps and steps within a pass, on GPUs of several ranks: the bits of the same ranks in host memory. Gradients are
// whole numbers and the ranks 2 or 4, so that every order of adding them, and the division, give one mean.
#include <functional>
#include <limits>
#include <set>

#include "gpu_host/placed_model.hpp"
#include "model/uneven.hpp"
#include "optim/adam.hpp"
#include "optim/ema.hpp"
#include "optim/sgd.hpp"
#include "support/rule_options.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

enum class Rule { kNesterov, kAdamW };

struct TrainedWays {
  std::string name;
  bool shard = false;
  bool in_backward = false;
  bool master_weights = false;
  double max_norm = 0;
  double clip_value = 0;
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  ddp_unused unused = DDP_UNUSED_ERROR;
};

template <class Options>
Options fill(Options options, const TrainedWays& ways) {
  options.rate = 0.05;
  options.weight_decay = 0.02;
  options.shard = ways.shard;
  options.in_backward = ways.in_backward;
  options.master_weights = ways.master_weights;
  options.max_norm = ways.max_norm;
  options.clip_value = ways.clip_value;
  options.nonfinite = ways.nonfinite;
  return options;
}

/// A model of this rank with an optimizer; the other ranks have the same.
struct Trained {
  PlacedModel placed;
  std::shared_ptr<optim::BuiltinOptimizer> optimizer;

  Trained(group::Group& group, const std::vector<Placed>& homes, Rule rule, const TrainedWays& ways)
      : placed(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), homes, ways.unused) {
    if (rule == Rule::kAdamW) {
      optimizer = std::make_shared<optim::Adam>(placed.model, fill(AdamOptions(), ways), fill(AdamOptions(), ways));
    } else {
      SgdOptions options = fill(SgdOptions(), ways);
      options.momentum = 0.875;
      options.nesterov = 1;
      optimizer = std::make_shared<optim::Sgd>(placed.model, options, options);
    }
    if (optimizer->in_passes() != nullptr) placed.model->optimizer_slot().attach(optimizer);
  }
  void train(int rank, int step) const {
    placed.fill_whole_grads(rank, step);
    placed.pass();
    optimizer->step(placed.stream());
  }
  [[nodiscard]] std::vector<PlacedBytes> values() const {
    std::vector<PlacedBytes> all;
    for (int32_t i = 0; i < placed.size(); ++i) all.push_back(placed.read(placed.value(i)));
    return all;
  }
  /// What of it is on this rank.
  [[nodiscard]] std::vector<PlacedBytes> own_state(int rank) const {
    std::vector<PlacedBytes> all;
    for (model::StateTensor& each : optimizer->state_tensors()) {
      Tensor part = each.tensor;
      if (!each.parts.empty()) part = flat_part(part, 0, count_of(each.parts[static_cast<size_t>(rank)]));
      all.push_back(placed.read(part));
    }
    return all;
  }
  /// The optimizer's state, of all ranks: which of them has what may differ.
  [[nodiscard]] std::vector<PlacedBytes> state(group::Group& group) const {
    std::vector<PlacedBytes> all;
    for (model::StateTensor& each : optimizer->state_tensors()) {
      if (each.parts.empty()) {
        all.push_back(placed.read(each.tensor));
        continue;
      }
      const auto own = static_cast<size_t>(group.rank());
      const PlacedBytes mine = placed.read(flat_part(each.tensor, 0, count_of(each.parts[own])));
      const std::vector<std::string> by_rank =
          group.gather("state", std::string(reinterpret_cast<const char*>(mine.data()), mine.size()));
      PlacedBytes whole(static_cast<size_t>(each.tensor.bytes()));
      const auto size = static_cast<size_t>(dtype_size(each.tensor.dtype));
      for (size_t rank = 0; rank < by_rank.size(); ++rank) {
        size_t at = 0;
        for (const OwnedSpan& part : each.parts[rank]) {
          const size_t bytes = static_cast<size_t>(part.count) * size;
          std::memcpy(whole.data() + static_cast<size_t>(part.first) * size, by_rank[rank].data() + at, bytes);
          at += bytes;
        }
      }
      all.push_back(std::move(whole));
    }
    return all;
  }
};

std::vector<TrainedWays> all_ways() {
  std::vector<TrainedWays> all;
  for (const auto& [shard, in_backward] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}})
    for (int policy = 0; policy < 5; ++policy) {
      TrainedWays ways;
      ways.shard = shard;
      ways.in_backward = in_backward;
      ways.master_weights = policy == 1 || policy == 3;
      ways.clip_value = policy == 1 ? 5 : 0;
      ways.max_norm = policy == 2 || policy == 3 ? 40 : 0;
      ways.nonfinite = policy == 3 || policy == 4 ? DDP_NONFINITE_SKIP : DDP_NONFINITE_KEEP;
      ways.unused = policy == 4 ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
      ways.name = std::string(shard ? "shard " : "") + (in_backward ? "in_backward " : "") + std::to_string(policy);
      all.push_back(ways);
    }
  return all;
}

void compare(int size, Rule rule, const std::vector<Placed>& homes) {
  for (const TrainedWays& ways : all_ways())
    run_gpu_groups(size, [&](group::Group& group, int rank) {
      Trained wanted(group, all_types(Home::kHost), rule, ways), got(group, homes, rule, ways);
      for (int step = 0; step < 4; ++step) {
        const std::string what = ways.name + ", step " + std::to_string(step);
        wanted.train(rank, step);
        got.train(rank, step);
        expect(got.values() == wanted.values(), what + ": values");
        expect(got.state(group) == wanted.state(group), what + ": state");
        expect_equal(got.optimizer->grad_norm(), wanted.optimizer->grad_norm(), what + ": norm");
        expect(got.optimizer->state_fields() == wanted.optimizer->state_fields(), what + ": fields");
      }
    });
}

void every_way_gives_the_bits_of_the_cpu(void**) {
  for (const int size : {2, 4})
    for (const Rule rule : {Rule::kNesterov, Rule::kAdamW}) compare(size, rule, all_types(Home::kGpu));
}

void every_way_gives_these_bits_with_parameters_in_both_memories(void**) {
  compare(2, Rule::kAdamW, mixed_homes());  // other buckets, so other slices
}

void a_void_pass_is_taken_back_everywhere(void**) {
  for (const bool shard : {false, true})
    for (const auto& homes : {all_types(Home::kGpu), mixed_homes()})
      run_gpu_groups(2, [&](group::Group& group, int rank) {
        TrainedWays ways;
        ways.in_backward = true;
        ways.shard = shard;
        ways.master_weights = true;
        Trained trained(group, homes, Rule::kAdamW, ways),
            other(group, homes, Rule::kAdamW, TrainedWays{.name = "plain", .master_weights = true});
        for (int step = 0; step < 5; ++step) {
          const auto before = trained.values();
          if (step == 1 || step == 3) {
            trained.placed.fill_whole_grads(rank, step);
            expect_contains(expect_error(DDP_ERROR_INVALID_STATE, [&] { trained.placed.pass(rank == 1 ? 0 : -1); }),
                            "rank 1 did not mark \"p0\"");
            expect(trained.values() == before, "the parameters are as before the pass");
            continue;
          }
          trained.train(rank, step);
          other.train(rank, step);
          expect(trained.values() == other.values(), "the moments are as before the failed pass too");
        }
      });
}

void a_rank_that_skips_a_pass_takes_part_in_its_step(void**) {
  for (const bool shard : {false, true})
    for (const bool in_backward : {false, true})
      run_gpu_groups(2, [&](group::Group& group, int rank) {
        TrainedWays ways;
        ways.shard = shard;
        ways.in_backward = in_backward;
        Trained wanted(group, all_types(Home::kHost), Rule::kAdamW, ways),
            got(group, all_types(Home::kGpu), Rule::kAdamW, ways);
        for (int step = 0; step < 4; ++step)
          for (const Trained* each : {&wanted, &got}) {
            each->placed.fill_whole_grads(rank, step);
            if (step == 2 && rank == 0)
              skip_backward(*each->placed.model, each->placed.stream());
            else
              each->placed.pass();
            each->optimizer->step(each->placed.stream());
            if (each == &got) expect(got.values() == wanted.values(), "values after step " + std::to_string(step));
          }
      });
}

void gradients_that_are_not_finite_are_met_alike(void**) {
  for (const bool shard : {false, true})
    for (const auto& homes : {all_types(Home::kGpu), mixed_homes()})
      run_gpu_groups(2, [&](group::Group& group, int rank) {
        TrainedWays ways;
        ways.shard = shard;
        ways.nonfinite = DDP_NONFINITE_SKIP;
        Trained skips(group, homes, Rule::kAdamW, ways);
        ways.nonfinite = DDP_NONFINITE_FAIL;
        Trained fails(group, homes, Rule::kAdamW, ways);
        for (Trained* each : {&skips, &fails}) {
          each->train(rank, 0);
          const auto before = each->values();
          each->placed.fill_whole_grads(rank, 1);
          if (rank == 1) each->placed.set_grad_element(7, 1024, std::numeric_limits<double>::quiet_NaN());
          each->placed.pass();
          if (each == &skips)
            each->optimizer->step(each->placed.stream());
          else
            expect_contains(expect_error(DDP_ERROR_INVALID_STATE, [&] { each->optimizer->step(each->placed.stream()); }),
                            "\"p7\"");
          expect(each->values() == before, "no value has changed");
          expect_equal(each->optimizer->step_count(), int64_t{1}, "steps");
        }
        expect_equal(skips.optimizer->skipped_count(), int64_t{1}, "skipped");
      });
}

void norms_of_slices_are_those_of_the_whole(void**) {
  for (const auto& homes : {all_types(Home::kGpu), mixed_homes()})
    run_gpu_groups(2, [&](group::Group& group, int rank) {
      TrainedWays ways;
      Trained whole(group, all_types(Home::kHost), Rule::kAdamW, ways);
      ways.shard = true;
      Trained sliced(group, homes, Rule::kAdamW, ways);
      for (int step = 0; step < 2; ++step) {  // the first pass of an attached optimizer is an ordinary one
        whole.train(rank, step);
        sliced.train(rank, step);
        for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)})
          expect_equal(sliced.placed.model->gradients().norm(p, sliced.placed.stream()),
                       whole.placed.model->gradients().norm(p), "norm");
      }
    });
}

void steps_and_averages_after_a_failure_change_nothing(void**) {
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    Trained trained(group, all_types(Home::kGpu), Rule::kAdamW, TrainedWays{});
    optim::Ema ema(trained.placed.model, {0.5});
    trained.train(rank, 0);
    ema.update(trained.placed.stream());
    trained.train(rank, 1);
    const auto before = trained.values();
    const auto state = trained.own_state(rank);
    const auto averages = trained.placed.read(ema.state_tensors()[0].tensor);
    trained.placed.fill_whole_grads(rank, 2);
    trained.placed.pass();
    group.barrier();
    // The group breaks between the call of a step and the work that it enqueued.
    fake_gpu::pause(trained.placed.stream());
    if (rank == 0) group.health().abort(Error(DDP_ERROR_ABORTED, "the test ends it"));
    wait_until([&] {
      try {
        group.health().check_usable();
        return false;
      } catch (const Error&) {
        return true;
      }
    });
    trained.optimizer->prepare_blocks();
    for (int32_t i = 0; i < trained.placed.size(); ++i) trained.optimizer->update_block(i, 0, trained.placed.value(i).count);
    trained.optimizer->flush(trained.placed.stream());
    ema.update(trained.placed.stream());
    fake_gpu::resume(trained.placed.stream());
    expect(trained.values() == before, "no value has changed");
    expect(trained.own_state(rank) == state, "no state has changed");
    expect(trained.placed.read(ema.state_tensors()[0].tensor) == averages, "no average has changed");
  });
}

void after_the_second_pass_nothing_is_allocated_and_nobody_is_waited_for(void**) {
  for (const auto& [shard, in_backward] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}})
    run_gpu_groups(2, [&](group::Group& group, int rank) {
      TrainedWays ways;
      ways.shard = shard;
      ways.in_backward = in_backward;
      Trained trained(group, all_types(Home::kGpu), Rule::kAdamW, ways);
      for (int step = 0; step < 2; ++step) trained.train(rank, step);
      group.barrier();
      if (rank == 0) fake_gpu::clear_log();
      group.barrier();
      for (int step = 0; step < 3; ++step) {
        trained.placed.pass();
        trained.optimizer->step(trained.placed.stream());
      }
      group.barrier();
      expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
      expect_equal(fake_gpu::host_waits(), int64_t{0}, "waits");
      group.barrier();
    });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {fake_gpu_host_test(every_way_gives_the_bits_of_the_cpu),
                              fake_gpu_host_test(every_way_gives_these_bits_with_parameters_in_both_memories),
                              fake_gpu_host_test(a_void_pass_is_taken_back_everywhere),
                              fake_gpu_host_test(a_rank_that_skips_a_pass_takes_part_in_its_step),
                              fake_gpu_host_test(gradients_that_are_not_finite_are_met_alike),
                              fake_gpu_host_test(norms_of_slices_are_those_of_the_whole),
                              fake_gpu_host_test(steps_and_averages_after_a_failure_change_nothing),
                              fake_gpu_host_test(after_the_second_pass_nothing_is_allocated_and_nobody_is_waited_for)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
