// SPDX-License-Identifier: Apache-2.0
// Gradients that are sums until the step divides them: who may use them, and steps in a CUDA graph. in_place_test.cpp holds
// the bits of ordinary steps.

#include "gpu_host/trained_in_place.hpp"
#include "model/gradients.hpp"
#include "support/check.hpp"

/// Between the pass and a step that divides, nothing of the library takes sums for means; nor does another optimizer.
ddp_ranks_case(run_on_gpus, nobody_takes_sums_for_means, 2) {
  for (const bool shard : {false, true}) {
    InPlaceTrained trained(group, rank, {.shard = shard, .divide_in_step = true, .counts = gpt2(1024), .smaller = 1024});
    model::Gradients& gradients = trained.model->gradients();
    const auto expect_sums = [](const std::function<void()>& call) {
      expect(expect_error(DDP_ERROR_INVALID_STATE, call).find("divide_in_step") != std::string::npos, "the option's name");
    };
    trained.pass(0);
    expect_sums([&] { static_cast<void>(gradients.norm(2)); });
    expect_sums([&] { gradients.scale(2); });
    expect_sums([&] { gradients.clip_norm(1, 2); });
    expect_sums([&] { gradients.clip_value(1); });
    expect_sums([&] { trained.optimizer->set_parameter_options(0, 0, 0); });
    ddp_loss_scale_options dynamic{.initial = 2, .growth = 2, .backoff = 0.5, .interval = 1};
    trained.optimizer->set_loss_scale(dynamic);
    expect_sums([&] { trained.optimizer->step(trained.stream.get()); });
    dynamic.interval = 0;
    dynamic.initial = 1;
    trained.optimizer->set_loss_scale(dynamic);
    trained.optimizer->step(trained.stream.get());
    expect(gradients.norm(2, trained.stream.get()) > 0, "the norm after the step");
    trained.pass(1);
    trained.optimizer.reset();
    AdamOptions rule;
    rule.shard = shard;
    trained.optimizer = std::make_shared<optim::Adam>(trained.model, rule, rule);
    if (trained.optimizer->in_passes() != nullptr) trained.model->optimizer_slot().attach(trained.optimizer);
    expect_sums([&] { trained.optimizer->step(trained.stream.get()); });
    trained.train(2);  // the next pass leaves means again
    group.barrier();
  }
}

/// Launches of a captured pass and step give the values of ordinary steps that find means.
ddp_case(a_captured_step_divides) {
  for (const bool shard : {false, true}) {
    run_on_gpus(3, [&](group::Group& group, int rank) {
      InPlaceWays ways{.shard = shard, .counts = gpt2(1024), .smaller = 1024};
      InPlaceTrained plain(group, rank, ways);
      ways.divide_in_step = true;
      InPlaceTrained tested(group, rank, ways);
      for (int step = 0; step < 2; ++step) plain.train(step), tested.train(step);
      const std::vector<GpuArray> numbers = tested.fresh(2);
      expect(fake_gpu::begin_capture(tested.stream.get(), fake_gpu::CaptureMode::kThreadLocal), "the capture begins");
      tested.enqueue_pass(numbers);
      tested.optimizer->step(tested.stream.get());
      std::string why;
      const fake_gpu::GraphPtr graph = fake_gpu::end_capture(tested.stream.get(), &why);
      expect(graph != nullptr, "the capture ends well: " + why);
      for (int launch = 0; launch < 3; ++launch) {
        plain.train(2);
        fake_gpu::launch_graph(graph, tested.stream.get());
        tested.stream.synchronize();
        group.barrier();
      }
      for (int32_t p = 0; p < tested.model->table().parameter_count(); ++p)
        expect(tested.value(p) == plain.value(p), "value " + std::to_string(p));
      group.barrier();
    });
  }
}
