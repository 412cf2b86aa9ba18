// SPDX-License-Identifier: Apache-2.0
// A hundred lives of a group, a model and an optimizer on the GPU leave nothing behind: no device memory, no threads, no
// file descriptors, and little on the host.
#include <cuda_runtime.h>

#include <filesystem>
#include <fstream>

#include "gpu/support/trainer.hpp"

using namespace ddp::test::card;

namespace {

int64_t free_device_bytes() {
  size_t free = 0, total = 0;
  if (cudaDeviceSynchronize() != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess)
    throw std::runtime_error("cudaMemGetInfo failed");
  return static_cast<int64_t>(free);
}

int64_t entries(const char* folder) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) count += !entry.path().empty();
  return count;
}

int64_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident;
}

void live_once(bool own_gradients) {
  const GroupHandle group = alone(DDP_BACKEND_NCCL);
  Plan plan;
  plan.own_gradients = own_gradients;
  plan.counts = {1'000'000, 3, 250'000};
  Trainer t(group.get(), plan);
  ddp_adam_options options;
  OK(ddp_adam_options_init(&options, sizeof options));
  ddp_optimizer_options shared;
  OK(ddp_optimizer_options_init(&shared, sizeof shared));
  shared.max_norm = 1;
  shared.in_backward = own_gradients;
  ddp_optimizer* made = nullptr;
  OK(ddp_optimizer_create_adam(t.model.get(), &options, &shared, &made));
  const OptimizerHandle optimizer(made);
  const double decay = 0.9;
  ddp_ema* averages = nullptr;
  OK(ddp_ema_create(t.model.get(), &decay, 1, &averages));
  const EmaHandle ema(averages);
  t.pass(0);
  OK(ddp_optimizer_step(made, t.stream.get()));
  OK(ddp_ema_update(averages, t.stream.get()));
  t.stream.wait();
}

ddp_case(a_hundred_lives_leave_nothing_behind) {
  for (int k = 0; k < 10; ++k) live_once(k % 2 == 0);
  const int64_t free = free_device_bytes(), threads = entries("/proc/self/task"), files = entries("/proc/self/fd"),
                pages = resident_pages();
  for (int k = 0; k < 100; ++k) live_once(k % 2 == 0);
  expect_equal(entries("/proc/self/task"), threads, "threads");
  expect_equal(entries("/proc/self/fd"), files, "file descriptors");
  // One life has 25 MB on the device; others may use it at the same time.
  expect(free - free_device_bytes() < int64_t{64} << 20,
         "device memory came back but for " + std::to_string((free - free_device_bytes()) >> 20) + " MiB");
  expect(resident_pages() - pages < (int64_t{64} << 20) / 4096,
         "host memory came back but for " + std::to_string((resident_pages() - pages) >> 8) + " MiB");
}

/// It is destroyed in the middle of a pass, when the gradients that libddp must pack are not even written.
ddp_case(models_may_be_destroyed_while_the_gpu_works) {
  const SlowWork slow(kGpu);
  for (int k = 0; k < 10; ++k) {
    const GroupHandle group = alone();
    Plan plan;
    plan.own_gradients = true;
    Trainer t(group.get(), plan);
    t.put_aside(0);
    OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
    slow.enqueue(t.stream.get());
    for (int32_t p = t.count(); p-- > 2;) {
      t.copy_grad(static_cast<size_t>(p), t.stream.get());
      OK(ddp_model_mark_ready(t.model.get(), p, t.stream.get()));
    }
    t.model.reset();  // no work touches the gradients after this
    t.own_grads.clear();
  }
  if (cudaDeviceSynchronize() != cudaSuccess)
    throw std::runtime_error(std::string("the GPU says ") + cudaGetErrorString(cudaGetLastError()));
}

gpu_cases({
  if (is_fake()) end_skipped("memory is counted by the CUDA runtime");
  need_devices(1);
});

}  // namespace
