// SPDX-License-Identifier: Apache-2.0
// Memory that is freed while the device may still use it: it is waited for, for a limited time, and kept where that is not
// enough. In the fake, free and host_free do not wait here, as NCCL's mem_free never does.

#include "gpu_host/placed_model.hpp"
#include "gpu_host/small_model.hpp"
#include "optim/adam.hpp"
#include "support/check.hpp"
#include "support/rule_options.hpp"

class FreesAtOnce : NotCopied {
 public:
  FreesAtOnce() {
    fake_gpu::Options options;
    options.nccl_looks = 3;
    options.frees_at_once = 1;
    fake_gpu::reset(options);
    gpu::set_table(&fake_gpu::table());
  }
  ~FreesAtOnce() { gpu::set_table(nullptr); }
};

/// A model with an optimizer, destroyed behind a pass and a step that its stream has not come to.
struct Trained {
  std::unique_ptr<PlacedModel> placed;
  std::unique_ptr<optim::Adam> adam;

  Trained(const std::shared_ptr<group::Group>& group) : placed(std::make_unique<PlacedModel>(*group, Home::kGpu)) {
    AdamOptions rule;
    adam = std::make_unique<optim::Adam>(placed->model, rule, rule);
    for (int step = 0; step < 2; ++step) {
      placed->pass();
      adam->step(placed->stream());
    }
  }
};

void run_on(int size, int64_t timeout_ms, const std::function<void(std::shared_ptr<group::Group>, int)>& body) {
  static std::atomic<int> next{0};
  const std::string place = "local://free-" + std::to_string(next++);
  run_ranks(size, [&](int rank) {
    ddp_group_options options = world_options(rank, size);
    options.device_index = rank;
    options.timeout_ms = timeout_ms;
    expect(fake_gpu::table().set_device(rank) == 0, "a GPU");
    body(group::Group::create(place.c_str(), options), rank);
  });
}

ddp_case(what_is_destroyed_is_waited_for) {
  for (const int size : {1, 2}) {
    const FreesAtOnce gpus;
    run_on(size, 20'000, [&](std::shared_ptr<group::Group> group, int) {
      Trained trained(group);
      trained.adam.reset();
      trained.placed->destroy();
      group->close();
      group.reset();
    });
    FakeGpus::expect_clean();
  }
}

/// What the program has enqueued never ends; no rank is lost, and nothing is broken.
ddp_case(a_destroy_has_a_limit) {
  for (const int size : {1, 2}) {
    const FreesAtOnce gpus;
    std::atomic<int> destroyed{0};
    run_on(size, 300, [&](std::shared_ptr<group::Group> group, int rank) {
      auto trained = std::make_unique<Trained>(group);
      expect(fake_gpu::table().synchronize() == 0, "waited");
      const GpuStream other(rank);
      GpuArray array(rank, 4);
      fake_gpu::pause(other.get());
      write_on(other.get(), array, trained->placed->model->table().parameter(0).grad.data);
      const int64_t ms = ms_of([&] {
        trained->adam.reset();
        trained->placed->destroy();
        group->close();
        group.reset();
      });
      ++destroyed;
      wait_until([&] { return destroyed == size; });
      fake_gpu::resume(other.get());
      other.synchronize();
      expect(ms >= 250 && ms < 4000, "the destroy takes " + std::to_string(ms) + " ms");
    });
    FakeGpus::expect_correct();
    expect(fake_gpu::live().allocations > 0, "what the device may use is kept");
  }
}

/// A wait without a limit of its own, and a group that breaks while it lasts.
ddp_case(a_break_shortens_the_wait) {
  const FreesAtOnce gpus;
  std::atomic<bool> broken{false};
  run_on(2, 0, [&](std::shared_ptr<group::Group> group, int rank) {
    Trained trained(group);
    expect(fake_gpu::table().synchronize() == 0, "waited");
    group->barrier();
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group->health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
      wait_until([&] { return broken.load(); });
      return;
    }
    const GpuStream other(rank);
    GpuArray array(rank, 4);
    fake_gpu::pause(other.get());
    write_on(other.get(), array, array.data());
    const int64_t ms = ms_of([&] { trained.adam.reset(); });
    broken = true;
    fake_gpu::resume(other.get());
    other.synchronize();
    expect(ms < 4000, "the destroy takes " + std::to_string(ms) + " ms");
  });
  FakeGpus::expect_correct();
}
