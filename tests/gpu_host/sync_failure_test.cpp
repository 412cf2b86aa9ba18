// SPDX-License-Identifier: Apache-2.0
// A rank whose GPU fails while ranks are made equal, compared or averaged: no rank waits for it, and no parameter changes.
#include "group/channels.hpp"
#include "model/average.hpp"
#include "model/replicas.hpp"
#include "model/sync_buffers.hpp"
#include "support/check.hpp"
#include "support/mixed_model.hpp"

ddp_case(a_rank_whose_gpu_fails_inside_ends_the_group_for_all) {
  for (const char* function : {"copy_bytes", "hash"}) {
    run_on_gpus(3, [&](group::Group& group, int rank) {
      MixedModel world(group, rank, Place::kGpu);
      world.model->commit(world.compute.get());
      world.compute.synchronize();
      group.barrier();
      fake_gpu::Fault fault;
      fault.function = function;
      fault.device = 1;
      if (rank == 1) fake_gpu::inject(fault);
      group.barrier();
      try {
        if (std::string(function) == "hash")
          world.model->replicas().check(world.compute.get());
        else
          sync_buffers(*world.model, 1, world.compute.get());
        throw std::runtime_error("it succeeded");
      } catch (const Error& error) {
        expect_contains(error.text(), "GPU 1");
        expect(rank == 1 || error.status() == DDP_ERROR_PEER_FAILED, "a peer failed");
      }
      (void)expect_error(DDP_ERROR_PEER_FAILED, [&] { group.health().check_usable(); });
    });
    fake_gpu::clear_faults();
    FakeGpus::expect_nothing_left();
  }
}

ddp_ranks_case(run_on_gpus, an_average_that_breaks_off_changes_no_parameter, 2) {
  MixedModel world(group, rank, Place::kGpu);
  world.model->commit(world.compute.get());
  world.compute.synchronize();
  world.fill(rank, 3);
  group.barrier();
  fake_gpu::pause(group.channels().first().gpu()->stream());
  average_parameters(*world.model, world.compute.get());
  group.barrier();  // or rank 1 may get the report of the end inside the call
  break_group(group);
  fake_gpu::resume(group.channels().first().gpu()->stream());
  world.compute.synchronize();
  world.expect_filled(rank, 3, "as before");
}

ddp_case(a_failure_behind_the_announcement_reaches_the_others) {
  run_on_gpus(2, [&](group::Group& group, int rank) {
    MixedModel world(group, rank, Place::kGpu);
    world.model->commit(world.compute.get());
    world.compute.synchronize();
    group.barrier();
    fake_gpu::Fault fault;
    fault.function = "event_record";
    fault.device = 1;
    if (rank == 1) fake_gpu::inject(fault);
    group.barrier();
    try {
      group.broadcast(world.tensor("large"), 0, world.compute.get());
      expect(rank == 0, "the failing rank says so");
    } catch (const Error& error) {
      expect_contains(error.text(), "GPU 1");
    }
    std::string text;
    wait_until([&] {
      try {
        group.health().check_usable();
      } catch (const Error& error) {
        text = error.text();
      }
      return !text.empty();
    });
    expect_contains(text, "rank 1");
  });
  fake_gpu::clear_faults();
  FakeGpus::expect_nothing_left();
}
