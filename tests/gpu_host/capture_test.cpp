// SPDX-License-Identifier: Apache-2.0
// A pass that is captured into a graph of the GPU and launched again: the graph holds what the pass enqueued, and the hosts
// have spoken once. It may be launched as long as its model and its group live and nothing has failed.

#include "optim/sgd.hpp"
#include "support/check.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

constexpr int64_t kCount = 3000;

ddp_model_options one_bucket() { return {.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20}; }

/// A model of one parameter, one pass of it captured.
struct Captured {
  GpuStream stream;
  GpuArray value, grad, fresh;
  std::shared_ptr<model::Model> model;
  void* where = nullptr;  // the gradient
  fake_gpu::GraphPtr graph;

  Captured(group::Group& group, int rank, bool owned)
      : stream(rank),
        value(rank, kCount * 4),
        grad(rank, kCount * 4),
        fresh(rank, kCount * 4),
        model(std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), one_bucket())) {
    value.poke(std::vector<float>(kCount, 0));
    const Tensor lent = grad.tensor(group, DDP_F32);
    model->add_parameter("w", value.tensor(group, DDP_F32), owned ? nullptr : &lent);
    model->commit(stream.get());
    where = model->table().parameter(0).grad.data;
    fresh.poke(std::vector<float>(kCount, 1));
    pass();
    stream.synchronize();
    group.barrier();
    expect(fake_gpu::begin_capture(stream.get(), fake_gpu::CaptureMode::kThreadLocal), "the capture begins");
    pass();
    std::string why;
    graph = fake_gpu::end_capture(stream.get(), &why);
    expect(graph != nullptr, "the capture ends well: " + why);
  }
  void pass() const {
    model->begin_backward(DDP_PASS_REDUCE);
    write_on(stream.get(), fresh, where);
    model->pass().mark_ready(0, stream.get());
    model->end_backward(stream.get());
  }
  /// The gradient that a launch makes of rank + 1, `scale` times.
  [[nodiscard]] std::vector<float> launch(int rank, int scale) {
    fresh.poke(std::vector<float>(kCount, static_cast<float>((rank + 1) * scale)));
    fake_gpu::launch_graph(graph, stream.get());
    return read_on(stream, rank, where, kCount);
  }
};

ddp_case(a_captured_pass_can_be_launched_again) {
  each_adder([](const ddp_group_options& with) {
    for (const bool owned : {false, true}) {
      run_on_gpus(2, with, [&](group::Group& group, int rank) {
        Captured captured(group, rank, owned);
        SgdOptions options;
        options.rate = 1;
        optim::Sgd sgd(captured.model, options, options);
        float wanted = 0;
        for (int replay = 1; replay <= 3; ++replay) {
          for (const float each : captured.launch(rank, replay))
            expect_equal(each, 1.5F * static_cast<float>(replay), "the mean of the replay");
          sgd.step(captured.stream.get());  // a launch makes new gradients, of which the model has no notice
          wanted -= 1.5F * static_cast<float>(replay);
          for (const float each : read_on(captured.stream, rank, captured.value.data(), kCount))
            expect_equal(each, wanted, "the step");
        }
        group.barrier();
      });
      FakeGpus::expect_correct(owned ? "in place" : "copied");
      FakeGpus::expect_nothing_left();
    }
  });
}

/// Copies of all models use one block. One that is too small for a new model stays where it is, because graphs use it.
ddp_case(a_larger_model_leaves_a_graph_as_it_is) {
  each_adder([](const ddp_group_options& with) {
    run_on_gpus(2, with, [&](group::Group& group, int rank) {
      Captured captured(group, rank, false);
      GpuArray value(rank, kCount * 80), grad(rank, kCount * 80);
      value.poke(std::vector<float>(kCount * 20, 0));
      grad.poke(std::vector<float>(kCount * 20, static_cast<float>(rank)));
      model::Model larger(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), one_bucket());
      const Tensor lent = grad.tensor(group, DDP_F32);
      larger.add_parameter("w", value.tensor(group, DDP_F32), &lent);
      larger.commit(captured.stream.get());
      for (int replay = 1; replay <= 3; ++replay) {
        larger.begin_backward(DDP_PASS_REDUCE);
        larger.pass().mark_ready(0, captured.stream.get());
        larger.end_backward(captured.stream.get());
        for (const float each : captured.launch(rank, replay))
          expect_equal(each, 1.5F * static_cast<float>(replay), "the mean of the replay");
      }
      for (const float each : read_on(captured.stream, rank, grad.data(), kCount * 20)) expect_equal(each, 0.5F, "the mean");
      group.barrier();
    });
  });
}

ddp_case(destroying_the_model_waits_for_a_launch) {
  each_adder([](const ddp_group_options& with) {
    run_on_gpus(2, with, [&](group::Group& group, int rank) {
      Captured captured(group, rank, true);
      group.barrier();
      fake_gpu::pause(captured.stream.get());
      fake_gpu::launch_graph(captured.graph, captured.stream.get());
      std::atomic<bool> destroyed{false};
      std::thread destroyer([&] {
        captured.model.reset();
        destroyed = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      expect(!destroyed.load(), "the launch is still to come");
      fake_gpu::resume(captured.stream.get());
      destroyer.join();
      expect_equal(fake_gpu::pending(captured.stream.get()), int64_t{0}, "operations that are left");
      group.barrier();
    });
  });
}

/// What a launch that breaks off leaves behind does not reach the program's own memory.
ddp_case(a_launch_that_breaks_off_writes_no_gradient) {
  each_adder([](const ddp_group_options& with) {
    const FakeGpus gpus;
    std::atomic<bool> launched{false};
    run_gpu_groups_with(2, with, [&](group::Group& group, int rank) {
      Captured captured(group, rank, false);
      group.barrier();
      if (rank == 1) {
        wait_until([&] { return launched.load(); });
        group.health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
        return;
      }
      fake_gpu::launch_graph(captured.graph, captured.stream.get());
      launched = true;
      expect(fake_gpu::wait_idle(), "the device comes to an end");
      for (const float each : read_on(captured.stream, rank, captured.where, kCount))
        expect_equal(each, 1.0F, "the gradient of this rank, as the graph began");
    });
    FakeGpus::expect_nothing_left();
  });
}
