// SPDX-License-Identifier: Apache-2.0
// Many small buffers on GPUs are sent as one.
#include "model/model.hpp"
#include "model/sync_buffers.hpp"
#include "support/check.hpp"
#include "support/gpu_world.hpp"

/// Channels of ResNet-50's batch norms.
std::vector<int64_t> channels_of_resnet50() {
  std::vector<int64_t> channels = {64};
  const int blocks[] = {3, 4, 6, 3};
  for (int layer = 0; layer < 4; ++layer)
    for (int block = 0; block < blocks[layer]; ++block) {
      const int64_t width = 64 << layer;
      channels.insert(channels.end(), {width, width, 4 * width});
      if (block == 0) channels.push_back(4 * width);
    }
  return channels;
}

/// Mean, variance and the number of batches of each.
ddp_case(the_buffers_of_53_batch_norms_travel_at_once) {
  const std::vector<int64_t> channels = channels_of_resnet50();
  expect_equal(channels.size(), size_t{53}, "batch norms");
  run_on_gpus(2, [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    ddp_model_options options{.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20};
    model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    std::vector<GpuArray> floats, counts;
    GpuArray weight(rank, 4), grad(rank, 4);
    weight.poke<float>({1});
    const Tensor lent = grad.tensor(group, DDP_F32);
    model.add_parameter("w", weight.tensor(group, DDP_F32), &lent);
    for (size_t at = 0; at < channels.size(); ++at) {
      for (const char* const name : {"mean", "variance"}) {
        floats.emplace_back(rank, channels[at] * 4);
        floats.back().poke(std::vector<float>(static_cast<size_t>(channels[at]), static_cast<float>(rank)));
        model.add_buffer(name + std::to_string(at), floats.back().tensor(group, DDP_F32));
      }
      counts.emplace_back(rank, 8).poke<int64_t>({rank});
      model.add_buffer("batches" + std::to_string(at), counts.back().tensor(group, DDP_I64));
    }
    model.commit(stream.get());
    sync_buffers(model, 0, stream.get());
    stream.synchronize();
    for (GpuArray& each : floats)
      each.poke(std::vector<float>(static_cast<size_t>(each.bytes()) / 4, static_cast<float>(rank)));
    for (GpuArray& each : counts) each.poke<int64_t>({rank});
    begin_log(group);
    sync_buffers(model, 1, stream.get());
    stream.synchronize();
    group.barrier();
    const auto calls = [&](std::initializer_list<const char*> names) {
      int64_t sum = 0;
      for (const char* const name : names) sum += fake_gpu::calls(name, rank);
      return sum;
    };
    expect_equal(calls({"nccl.broadcast", "nccl.all_reduce", "nccl.all_gather"}), int64_t{1}, "collectives");
    expect_equal(calls({"move", "copy", "copy_bytes", "exchange"}), int64_t{1}, "the root packs, the other one unpacks");
    for (const GpuArray& each : floats)
      expect(each.peek<float>() == std::vector<float>(static_cast<size_t>(each.bytes()) / 4, 1.0F), "the values of rank 1");
    for (const GpuArray& each : counts) expect_equal(each.peek<int64_t>()[0], int64_t{1}, "the count of rank 1");
    group.barrier();
  });
}
