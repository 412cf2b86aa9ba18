// SPDX-License-Identifier: Apache-2.0
// Groups and their collectives with tensors on a GPU, and the errors of a group that lacks a module, a driver or NCCL.

#include "device/gpu/device.hpp"
#include "support/check.hpp"
#include "support/gpu_world.hpp"

std::vector<float> counted(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 37));
  return values;
}

ddp_group_options nccl_options() {
  ddp_group_options options = world_options();
  options.backend = DDP_BACKEND_NCCL;
  return options;
}

ddp_case(collectives_give_what_they_give_in_host_memory) {
  constexpr size_t kCount = 1003;
  for (const int size : {1, 2, 3}) {
    const FakeGpus gpus(99);
    run_gpu_groups(size, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      const auto ranks = static_cast<size_t>(size);
      GpuArray fresh(rank, kCount * 4), one(rank, kCount * 4), all(rank, static_cast<int64_t>(kCount * ranks) * 4);
      fresh.poke(counted(rank, kCount));
      const float total = static_cast<float>(size * (size + 1) / 2);
      for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX}) {
        write_on(stream.get(), fresh, one.data());
        group.all_reduce(one.tensor(group, DDP_F32), op, stream.get());
        const std::vector<float> got = read_on(stream, rank, one.data(), kCount);
        for (size_t i = 0; i < kCount; ++i) {
          const float unit = static_cast<float>(i % 37);
          const float wanted = op == DDP_SUM       ? unit * total
                               : op == DDP_AVERAGE ? unit * total / static_cast<float>(size)
                               : op == DDP_MIN     ? unit
                                                   : unit * static_cast<float>(size);
          expect(std::abs(got[i] - wanted) <= 1e-6F * std::abs(wanted), "all-reduce");
        }
      }
      write_on(stream.get(), fresh, one.data());
      group.all_gather(one.tensor(group, DDP_F32), all.tensor(group, DDP_F32), stream.get());
      const std::vector<float> gathered = read_on(stream, rank, all.data(), static_cast<int64_t>(kCount * ranks));
      for (size_t r = 0; r < ranks; ++r)
        for (size_t i = 0; i < kCount; ++i)
          expect_equal(gathered[r * kCount + i], counted(static_cast<int>(r), kCount)[i], "all-gather");
      group.reduce_scatter(all.tensor(group, DDP_F32), one.tensor(group, DDP_F32), DDP_SUM, stream.get());
      const std::vector<float> part = read_on(stream, rank, one.data(), kCount);
      for (size_t i = 0; i < kCount; ++i)
        expect_equal(part[i], gathered[static_cast<size_t>(rank) * kCount + i] * static_cast<float>(size), "reduce-scatter");
      write_on(stream.get(), fresh, one.data());
      group.broadcast(one.tensor(group, DDP_F32), size - 1, stream.get());
      expect(read_on(stream, rank, one.data(), kCount) == counted(size - 1, kCount), "broadcast");
      group.barrier();
    });
    FakeGpus::expect_correct("size " + std::to_string(size));
    FakeGpus::expect_nothing_left();
  }
}

ddp_ranks_case(run_on_gpus, different_calls_are_a_mismatch_before_nccl_waits, 2) {
  GpuArray array(rank, 400);
  Tensor tensor = array.tensor(group, DDP_F32);
  if (rank == 1) tensor = flat_part(tensor, 0, 50);
  expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { group.all_reduce(tensor, DDP_SUM, nullptr); }, {"100 F32", "50 F32"});
}

ddp_ranks_case(run_on_gpus, the_mean_of_whole_numbers_and_mixed_places_are_refused, 2) {
  GpuArray array(rank, 400);
  expect_contains(
      expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { group.all_reduce(array.tensor(group, DDP_I32), DDP_AVERAGE, nullptr); }),
      "DDP_SUM");
  std::vector<float> host(200);
  expect_contains(
      expect_error(DDP_ERROR_INVALID_ARGUMENT,
                   [&] { group.all_gather(array.tensor(group, DDP_F32), flat_tensor(host.data(), DDP_F32, 200), nullptr); }),
      "both in host memory");
  group.barrier();
}

ddp_case(a_group_for_nccl_says_so_and_lends_gpu_memory) {
  run_on_gpus(2, nccl_options(), [&](group::Group& group, int) {
    expect_equal(static_cast<int>(group.backend()), static_cast<int>(DDP_BACKEND_NCCL), "the backend");
    void* const memory = group.memory().alloc(1000);
    gpu::require_on(group.gpu().device(), memory, "the group's memory");
    std::vector<uint8_t> bytes(1000, 1);
    expect(fake_gpu::peek(bytes.data(), memory, 1000) && bytes == std::vector<uint8_t>(1000, 0), "zeros");
    group.memory().free(memory);
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { group.memory().free(memory); }, {"does not come from"});
    // Tensors in host memory go by the host's way all the same.
    float number = 1;
    group.all_reduce(flat_tensor(&number, DDP_F32, 1), DDP_SUM);
    expect_equal(number, 2.0F, "a sum in host memory");
    group.barrier();
  });
}

/// All ranks get this from making a group for NCCL.
void expect_refusal(int size, const std::string& part) {
  run_ranks(size, [&](int rank) {
    ddp_group_options options = nccl_options();
    options.rank = rank;
    options.world_size = size;
    options.device_index = rank;
    const std::string place = "local://refused-" + part.substr(0, 6) + std::to_string(size);
    expect_contains(
        expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { static_cast<void>(group::Group::create(place.c_str(), options)); }),
        part);
  });
  FakeGpus::expect_nothing_left();
}

ddp_case(what_is_missing_is_named_on_every_rank) {
  {
    const FakeGpus gpus;
    fake_gpu::set_driver_version(0);
    expect_refusal(2, "NVIDIA driver");
  }
  {
    const FakeGpus gpus;
    fake_gpu::set_device_count(0);
    expect_refusal(2, "sees no GPU");
  }
  {
    const FakeGpus gpus;
    fake_gpu::set_open_nccl_error("libnccl.so.2: no such file");
    expect_refusal(2, "libnccl.so.2: no such file");
  }
  setenv("DDP_MODULE_PATH", "/nowhere", 1);
  expect_refusal(1, "libddp_cuda.so");
}

ddp_case(two_ranks_on_one_gpu_are_refused_in_nccls_words) {
  const FakeGpus gpus;
  ddp_group_options options = world_options();
  run_ranks(2, [&](int rank) {
    ddp_group_options mine = options;
    mine.backend = DDP_BACKEND_NCCL;
    mine.rank = rank;
    mine.world_size = 2;
    mine.device_index = 0;
    expect_contains(
        expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { static_cast<void>(group::Group::create("local://one-gpu", mine)); }),
        "NCCL could not connect");
  });
  FakeGpus::expect_nothing_left();
}
