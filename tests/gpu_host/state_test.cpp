// SPDX-License-Identifier: Apache-2.0
// Checkpoints of models on GPUs: the same file as from host memory, read into either, with moments that are on the GPU, also
// in parts.

#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "support/gpu_checkpoint.hpp"

constexpr Place kPlaces[] = {Place::kHost, Place::kGpu, Place::kMixed};

ddp_case(a_file_has_the_same_bytes_wherever_the_tensors_lie) {
  const TemporaryFolder folder;
  std::string wanted;
  for (const int size : {1, 2, 3})
    for (const Place place : kPlaces)
      for (const bool sharded : {false, true}) {
        const FakeGpus gpus(9);
        run_gpu_groups(size, [&](group::Group& group, int rank) {
          Checkpointed state(group, rank, place, sharded);
          state.fill(5);
          state.save(folder.file("a"));
        });
        const std::string bytes = read_whole(folder.file("a"));
        if (wanted.empty()) wanted = bytes;
        expect(bytes == wanted, "size " + std::to_string(size) + ", place " + std::to_string(static_cast<int>(place)));
        FakeGpus::expect_clean();
      }
}

ddp_case(a_file_is_loaded_wherever_the_tensors_lie) {
  const TemporaryFolder folder;
  run_groups(1, [&](group::Group& group, int rank) {
    const FakeGpus gpus;
    Checkpointed state(group, rank, Place::kHost);
    state.fill(6);
    state.save(folder.file("a"));
  });
  for (const int size : {1, 2, 3})
    for (const Place place : kPlaces)
      for (const bool sharded : {false, true}) {
        run_on(Path::kGpu, size, [&](group::Group& group, int rank) {
          Checkpointed state(group, rank, place, sharded);
          if (size > 1) state.world.model->commit(state.world.compute.get());
          state.world.compute.synchronize();
          state.fill(7 + rank);
          state.load(folder.file("a"));
          state.expect_filled(6, "loaded on " + std::to_string(size));
        });
      }
}

ddp_case(tensors_of_many_chunks_come_and_go_whole) {
  const TemporaryFolder folder;
  const int64_t large = 5 * checkpoint::kChunkBytes / 4 + 777;
  for (const int size : {1, 2}) {
    run_on_gpus(size, [&](group::Group& group, int rank) {
      Checkpointed state(group, rank, Place::kGpu, true, large);
      state.fill(1);
      state.save(folder.file("a"));
      state.fill(2 + rank);
      state.load(folder.file("a"));
      state.expect_filled(1, "large tensors");
      group.barrier();
    });
  }
}

ddp_case(saving_and_loading_wait_for_what_was_enqueued) {
  const TemporaryFolder folder;
  run_on(Path::kGpu, 1, [&](group::Group& group, int rank) {
    Checkpointed state(group, rank, Place::kGpu);
    GpuArray fresh(rank, state.world.bytes("large"));
    const GpuStream other(rank);
    state.fill(3);
    fresh.poke(state.world.lent("large").read());
    state.fill(4);
    fake_gpu::pause(other.get());
    write_on(other.get(), fresh, state.world.tensor("large").data);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the save would be over
      fake_gpu::resume(other.get());
    });
    state.save(folder.file("a"));
    later.join();
    const std::vector<std::byte> saved = state.world.lent("large").read();
    expect(saved == fresh.peek<std::byte>(), "the enqueued write came before the save");
    state.fill(8);
    state.load(folder.file("a"));
    expect(state.world.lent("large").read() == saved, "and is in the file");
  });
}

ddp_case(a_part_is_loaded_and_one_rank_loads_alone) {
  const TemporaryFolder folder;
  run_on_gpus(2, [&](group::Group& group, int rank) {
    Checkpointed saved(group, rank, Place::kHost);
    saved.fill(3);
    saved.save(folder.file("a"));
    Checkpointed state(group, rank, Place::kGpu);
    state.fill(9);
    GpuArray extra(rank, 400);
    extra.poke(std::vector<float>(100, 5.0F));
    state.world.model->add_buffer("extra", extra.tensor(group, DDP_F32));
    group.barrier();
    state.load(folder.file("a"), {.partial = true, .local = false});
    state.expect_filled(3, "what both have");
    expect(extra.peek<float>() == std::vector<float>(100, 5.0F), "what the file lacks is left alone");
    expect_equal(state.world.model->checkpoint_info().last_load.missing.size(), size_t{1}, "missing tensors");

    Checkpointed alone(group, rank, Place::kGpu);
    alone.fill(11);
    if (rank == 0) alone.load(folder.file("a"), {.partial = false, .local = true});
    group.barrier();
    alone.expect_filled(rank == 0 ? 3 : 11, "alone");
    group.barrier();
  });
}
