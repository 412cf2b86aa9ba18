// SPDX-License-Identifier: Apache-2.0
// The group option `reproducible` is for GPUs of one host: between hosts the first use of a GPU is refused on all ranks, and
// the group stays whole. Host memory has the same bits anyway.

#include "gpu_host/reproducible_trainee.hpp"
#include "support/check.hpp"

/// Ranks as threads whose hosts have these names.
void run_on_hosts(const char* hosts, int size, int32_t reproducible, const std::function<void(group::Group&, int)>& body) {
  setenv("DDP_TEST_HOST", hosts, 1);
  run_gpu_groups_with(size, with_reproducible(reproducible), body);
  unsetenv("DDP_TEST_HOST");
}

/// What a collective on a GPU comes to.
void sum_on_gpu(group::Group& group, int rank, float wanted) {
  const GpuStream stream(rank);
  GpuArray array(rank, 4000);
  array.poke(std::vector<float>(1000, 1));
  group.all_reduce(array.tensor(group, DDP_F32), DDP_SUM, stream.get());
  stream.synchronize();
  expect(array.peek<float>() == std::vector<float>(1000, wanted), "the sum");
}

ddp_case(between_hosts_gpus_are_refused_and_host_memory_is_not) {
  const FakeGpus gpus;
  run_on_hosts("0,0,1,1", 4, 1, [](group::Group& group, int rank) {
    for (int again = 0; again < 2; ++again) {
      expect_error(
          DDP_ERROR_NOT_SUPPORTED, [&] { sum_on_gpu(group, rank, 4); },
          {"reproducible is for tensors on GPUs of one host, but the 4 ranks are on 2 hosts", "set reproducible to 0"});
    }
    expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { trained(group, DDP_F32, Way{}, true); }, {"of one host"});
    auto numbers = random_numbers(DDP_F32, 1000, static_cast<uint64_t>(rank));
    group.all_reduce(flat_tensor(numbers.data(), DDP_F32, 1000), DDP_SUM);
    static_cast<void>(trained(group, DDP_F32, Way{}, false));
    group.barrier();
  });
  FakeGpus::expect_clean();
}

ddp_case(on_one_host_and_without_the_option_they_are_not) {
  for (const int32_t reproducible : {0, 1}) {
    const FakeGpus gpus;
    run_on_hosts(reproducible != 0 ? "7,7,7" : "0,1,1", 3, reproducible,
                 [](group::Group& group, int rank) { sum_on_gpu(group, rank, 3); });
    FakeGpus::expect_clean();
  }
}
