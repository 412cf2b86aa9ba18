// SPDX-License-Identifier: Apache-2.0
// The group option `reproducible`: blocking collectives of tensors on GPUs have the bits of host memory, whatever the
// numbers are. NCCL of the fake adds in another order than the CPU, so without the option the bits are others.
#include "gpu_host/reproducible_group.hpp"
#include "group/channels.hpp"
#include "nccl/shared_engine.hpp"
#include "nccl/tree_sum.hpp"
#include "support/check.hpp"

ddp_case(collectives_have_the_bits_of_host_memory) {
  for (const int size : {1, 2, 3, 5}) {
    const FakeGpus gpus(5);
    run_reproducible(size, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_I64, DDP_U8})
        for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX})
          for (const int64_t each : {7, 1024, 1500}) {
            const int64_t count = each * size;
            const GroupBytes input = random_numbers(dtype, count, static_cast<uint64_t>(rank * 1000 + count));
            GroupBytes whole = input, source = input, own(input.size() / static_cast<size_t>(size));
            group.all_reduce(flat_tensor(whole.data(), dtype, count), op);
            group.reduce_scatter(flat_tensor(source.data(), dtype, count), flat_tensor(own.data(), dtype, each), op);
            GpuArray all(rank, static_cast<int64_t>(input.size())), part(rank, static_cast<int64_t>(own.size()));
            all.poke(input);
            group.reduce_scatter(all.tensor(group, dtype), part.tensor(group, dtype), op, stream.get());
            stream.synchronize();
            const std::string what = std::to_string(count) + " " + dtype_name(dtype) + ", op " + std::to_string(op) + ", " +
                                     std::to_string(size) + " ranks";
            expect(part.peek<std::byte>() == own, "reduce-scatter of " + what);
            expect(all.peek<std::byte>() == input, "its input stays: " + what);
            group.reduce_scatter(all.tensor(group, dtype), flat_part(all.tensor(group, dtype), rank * each, each), op,
                                 stream.get());
            stream.synchronize();
            const GroupBytes after = all.peek<std::byte>();
            expect(std::equal(own.begin(), own.end(), after.begin() + static_cast<std::ptrdiff_t>(own.size()) * rank),
                   "in place: " + what);
            all.poke(input);
            group.all_reduce(all.tensor(group, dtype), op, stream.get());
            stream.synchronize();
            expect(all.peek<std::byte>() == whole, "all-reduce of " + what);
          }
      group.barrier();
    });
    FakeGpus::expect_clean();
  }
}

/// More than the memory for blocking collectives holds at once.
ddp_case(a_large_tensor_is_summed_in_parts) {
  constexpr int64_t kEach = (int64_t{3} << 20) + 5;
  const FakeGpus gpus;
  run_reproducible(3, [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    GroupBytes whole = random_numbers(DDP_F32, 3 * kEach, static_cast<uint64_t>(rank)), own(kEach * 4);
    GpuArray all(rank, static_cast<int64_t>(whole.size())), part(rank, kEach * 4);
    all.poke(whole);
    group.reduce_scatter(all.tensor(group, DDP_F32), part.tensor(group, DDP_F32), DDP_AVERAGE, stream.get());
    group.all_reduce(all.tensor(group, DDP_F32), DDP_AVERAGE, stream.get());
    stream.synchronize();
    group.reduce_scatter(flat_tensor(whole.data(), DDP_F32, 3 * kEach), flat_tensor(own.data(), DDP_F32, kEach),
                         DDP_AVERAGE);
    group.all_reduce(flat_tensor(whole.data(), DDP_F32, 3 * kEach), DDP_AVERAGE);
    expect(all.peek<std::byte>() == whole, "all-reduce");
    expect(part.peek<std::byte>() == own, "reduce-scatter");
    group.barrier();
  });
  FakeGpus::expect_correct();
}

/// More than the group's memory holds: it grows, and earlier users of it continue.
ddp_case(a_large_bucket_is_summed_at_once) {
  constexpr int64_t kSlice = int64_t{3} << 20;
  const FakeGpus gpus;
  run_reproducible(3, [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    nccl::Engine& transport = static_cast<nccl::SharedEngine&>(*group.channels().first().gpu()).engine();
    const cpu::ReduceRule rule{DDP_F32, DDP_AVERAGE, 3};
    nccl::TreeSum small(transport, {rule, 1024}), large(transport, {rule, kSlice});
    for (const auto& [sum, slice] : {std::pair{&large, kSlice}, {&small, int64_t{1024}}}) {
      GroupBytes whole = random_numbers(DDP_F32, 3 * slice, static_cast<uint64_t>(rank));
      GpuArray all(rank, static_cast<int64_t>(whole.size()));
      all.poke(whole);
      transport.order_after(stream.get());
      sum->all_reduce(static_cast<std::byte*>(all.data()), collective::Participation{});
      transport.order_before(stream.get());
      stream.synchronize();
      group.all_reduce(flat_tensor(whole.data(), DDP_F32, 3 * slice), DDP_AVERAGE);
      expect(all.peek<std::byte>() == whole, "the sum of slices of " + std::to_string(slice));
    }
    group.barrier();
  });
  FakeGpus::expect_correct();
}

/// From three ranks on.
ddp_case(without_the_option_the_bits_are_nccls) {
  run_on_gpus(3, with_reproducible(0), [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    GroupBytes whole = random_numbers(DDP_F32, 1000, static_cast<uint64_t>(rank));
    GpuArray all(rank, static_cast<int64_t>(whole.size()));
    all.poke(whole);
    group.all_reduce(all.tensor(group, DDP_F32), DDP_SUM, stream.get());
    group.all_reduce(flat_tensor(whole.data(), DDP_F32, 1000), DDP_SUM);
    stream.synchronize();
    expect(all.peek<std::byte>() != whole, "an all-reduce");
    group.barrier();
  });
}

ddp_case(ranks_that_differ_are_told) {
  const FakeGpus gpus;
  static std::atomic<int> next{0};
  const std::string place = "local://reproducible-" + std::to_string(next++);
  run_ranks(2, [&](int rank) {
    ddp_group_options mine = with_reproducible(rank);
    mine.rank = rank;
    mine.world_size = 2;
    expect_error(DDP_ERROR_MISMATCH, [&] { (void)group::Group::create(place.c_str(), mine); },
                 {"reproducible 0", "reproducible 1"});
  });
}
