// SPDX-License-Identifier: Apache-2.0
// Gradients that are sums until the step divides them: who may use them, and steps in a CUDA graph. in_place_test.cpp holds
// the bits of ordinary steps.

#include "gpu_host/trained_in_place.hpp"
#include "support/check.hpp"

Ways ways_of(bool shard, bool divide_in_step) {
  Ways ways = kept_ways(gpt2(1024), 1024);
  ways.shard = shard;
  ways.divide_in_step = divide_in_step;
  return ways;
}

/// Between the pass and a step that divides, nothing of the library takes sums for means; nor does another optimizer.
ddp_ranks_case(run_on_gpus, nobody_takes_sums_for_means, 2) {
  for (const bool shard : {false, true}) {
    Training trained(group, Rule::kAdamW, ways_of(shard, true));
    model::Gradients& gradients = trained.model->gradients();
    const auto expect_sums = [](const std::function<void()>& call) {
      expect(expect_error(DDP_ERROR_INVALID_STATE, call).find("divide_in_step") != std::string::npos, "the option's name");
    };
    trained.pass(rank, 0);
    expect_sums([&] { static_cast<void>(gradients.norm(2)); });
    expect_sums([&] { gradients.scale(2); });
    expect_sums([&] { gradients.clip_norm(1, 2); });
    expect_sums([&] { gradients.clip_value(1); });
    expect_sums([&] { trained.optimizer->set_parameter_options(0, 0, 0); });
    ddp_loss_scale_options dynamic{.initial = 2, .growth = 2, .backoff = 0.5, .interval = 1};
    trained.optimizer->set_loss_scale(dynamic);
    expect_sums([&] { trained.step(); });
    dynamic.interval = 0;
    dynamic.initial = 1;
    trained.optimizer->set_loss_scale(dynamic);
    trained.step();
    expect(gradients.norm(2, trained.stream()) > 0, "the norm after the step");
    trained.pass(rank, 1);
    trained.ways.divide_in_step = false;
    trained.optimizers.clear();
    trained.optimizer.reset();
    trained.make_optimizer(Rule::kAdamW);
    expect_sums([&] { trained.step(); });
    trained.train(rank, 2);  // the next pass leaves means again
    group.barrier();
  }
}

/// Launches of a captured pass and step give the values of ordinary steps that find means.
ddp_case(a_captured_step_divides) {
  for (const bool shard : {false, true}) {
    run_on_gpus(3, [&](group::Group& group, int rank) {
      Training plain(group, Rule::kAdamW, ways_of(shard, false));
      Ways ways = ways_of(shard, true);
      ways.enqueued = true;
      Training tested(group, Rule::kAdamW, ways);
      for (int step = 0; step < 2; ++step) plain.train(rank, step), tested.train(rank, step);
      tested.synchronize();
      tested.fill(rank, 2);
      const fake_gpu::GraphPtr graph = capture(tested.stream(), [&] {
        tested.reduce();
        tested.step();
      });
      for (int launch = 0; launch < 3; ++launch) {
        plain.train(rank, 2);
        fake_gpu::launch_graph(graph, tested.stream());
        tested.synchronize();
        group.barrier();
      }
      expect(tested.bytes() == plain.bytes(), "values");
      group.barrier();
    });
  }
}
