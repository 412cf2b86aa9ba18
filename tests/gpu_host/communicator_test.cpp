// SPDX-License-Identifier: Apache-2.0
// How a communicator comes and goes: ranks that do not come or end meanwhile, NCCL that blocks, memory that is still in use,
// ranks that are late.

#include "gpu_host/small_model.hpp"
#include "model/optimizer_slot.hpp"
#include "nccl/shared_engine.hpp"
#include "optim/adam.hpp"
#include "optim/sgd.hpp"
#include "support/check.hpp"
#include "support/rule_options.hpp"

ddp_case(a_rank_that_does_not_connect_is_a_time_out_and_not_a_hang) {
  const FakeGpus gpus;
  fake_gpu::delay_nccl(fake_gpu::NcclCall::kInit, 1, -1);
  run_ranks(2, [&](int rank) {
    ddp_group_options options = world_options(rank, 2);
    options.backend = DDP_BACKEND_NCCL;
    options.rendezvous_timeout_ms = 800;
    options.device_index = rank;
    const int64_t ms = ms_of([&] {
      try {
        static_cast<void>(group::Group::create("local://late-nccl", options));
        expect(false, "it cannot be made");
      } catch (const Error& error) {
        expect(error.status() == DDP_ERROR_TIMED_OUT || error.status() == DDP_ERROR_ABORTED ||
                   error.status() == DDP_ERROR_PEER_FAILED,
               error.text());
      }
    });
    expect(ms < 6000, "bounded: " + std::to_string(ms) + " ms");
  });
}

/// The first call of rank 1's NCCL does not return, as on a GPU that hangs, while its process lives and answers.
ddp_case(a_rank_that_nccl_waits_for_is_named) {
  const FakeGpus gpus;
  fake_gpu::let_die({1, 1, [] {}});
  run_ranks(3, [&](int rank) {
    ddp_group_options options = world_options(rank, 3);
    options.rendezvous_timeout_ms = 800;
    options.device_index = rank;
    const auto group = group::Group::create("local://hangs-in-nccl", options);
    const int64_t ms = ms_of([&] {
      const std::string text =
          expect_error(DDP_ERROR_TIMED_OUT, [&] { group->gpu().connect(); }, {"rank 1 (", "has not come back"});
      expect(text.find("rank 0 (") == std::string::npos && text.find("rank 2 (") == std::string::npos, text);
    });
    expect(ms < 4000, "bounded: " + std::to_string(ms) + " ms");
  });
  fake_gpu::end_death();
}

/// Rank 1 has agreed, and ends while NCCL connects: the others get the error at once, long before the time is up.
ddp_case(a_rank_that_ends_while_nccl_connects_is_named_at_once) {
  for (const int64_t looks : {0, 3}) {  // NCCL that blocks, as NCCL_COMM_BLOCKING=1 makes it, and NCCL that does not
    const FakeGpus gpus(0, looks);
    fake_gpu::delay_nccl(fake_gpu::NcclCall::kInit, 1, -1);
    std::atomic<int64_t> ended_ns{0};
    run_ranks(2, [&](int rank) {
      ddp_group_options options = world_options(rank, 2);
      options.rendezvous_timeout_ms = 30'000;
      options.device_index = rank;
      const auto group = group::Group::create("local://ends-in-nccl", options);
      std::thread ends;
      if (rank == 1)
        ends = std::thread([&] {
          wait_until([] { return fake_gpu::calls("nccl.comm_init") == 2; });
          ended_ns = os::now_ns();
          group->health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
        });
      expect_error(DDP_ERROR_ABORTED, [&] { group->gpu().connect(); }, {"had enough"});
      const int64_t ms = (os::now_ns() - ended_ns) / 1'000'000;
      expect(ms < 1000, "soon: " + std::to_string(ms) + " ms");
      if (ends.joinable()) ends.join();
    });
    FakeGpus::expect_correct();
  }
}

/// As on a loaded node, where all ranks of it go through NCCL's end together.
ddp_case(leaving_waits_for_a_slow_end_of_nccl) {
  for (const fake_gpu::NcclCall call : {fake_gpu::NcclCall::kFinalize, fake_gpu::NcclCall::kDestroy}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      SmallGpuModel world(group, rank);
      world.first_pass();
      fake_gpu::delay_nccl(call, rank, 1500);
      group.close();
      expect_equal(fake_gpu::calls("nccl.comm_destroy", rank), int64_t{1}, "ended in order");
      expect_equal(fake_gpu::live(rank).communicators, int64_t{0}, "communicators that are left");
    });
  }
}

ddp_case(leaving_is_bounded_when_nccl_blocks) {
  for (const fake_gpu::NcclCall call : {fake_gpu::NcclCall::kFinalize, fake_gpu::NcclCall::kDestroy}) {
    const FakeGpus gpus;
    ddp_group_options options = world_options();
    options.timeout_ms = 600;
    run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
      SmallGpuModel world(group, rank);
      world.first_pass();
      fake_gpu::delay_nccl(call, rank, 3000);
      expect(ms_of([&] { group.close(); }) < 2500, "left in time");
    });
    wait_until([] { return fake_gpu::live().communicators == 0; });  // what was left behind comes to its end
  }
}

ddp_case(a_rank_that_is_lost_ends_the_wait_for_nccls_end) {
  const FakeGpus gpus;  // the communicator of the lost rank stays
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallGpuModel world(group, rank);
    world.first_pass();
    fake_gpu::delay_nccl(fake_gpu::NcclCall::kFinalize, 0, 3000);
    if (rank == 1) {
      wait_until([] { return fake_gpu::calls("nccl.comm_finalize", 0) == 1; });
      group.health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
    }
    expect(ms_of([&] { group.close(); }) < 2500, "left in time");
  });
  wait_until([] { return fake_gpu::live().communicators == 0; });
}

/// A pass is enqueued on both ranks, and the models go while the devices have not come to it.
ddp_case(a_model_may_go_while_its_pass_is_under_way) {
  for (const bool shard : {false, true}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      auto world = std::make_unique<SmallGpuModel>(group, rank);
      const auto model = std::shared_ptr<model::Model>(&world->model, [](model::Model*) {});
      SgdOptions options;
      options.shard = shard ? 1 : 0;
      auto sgd = std::make_shared<optim::Sgd>(model, options, options);
      if (shard) model->optimizer_slot().attach(sgd);
      for (int step = 0; step < 2; ++step) {
        world->pass();
        sgd->step(world->stream.get());
      }
      group.barrier();
      fake_gpu::pause_device(rank);
      world->pass();
      sgd->step(world->stream.get());
      group.barrier();
      std::thread goes_on([rank] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50 + 150 * rank));
        fake_gpu::resume_device(rank);
      });
      sgd.reset();
      world->model.close();
      world.reset();
      goes_on.join();
    });
    FakeGpus::expect_correct("a model that goes");
    FakeGpus::expect_nothing_left();
  }
}

/// As a finalizer of a language does: a thread that has made no GPU current, and must not begin to use GPU 0.
ddp_case(what_a_fresh_thread_destroys_touches_no_other_gpu) {
  run_on_gpus(2, [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    const GpuArray value(rank, kCount * 4);
    auto model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}),
                                                SmallGpuModel::options());
    model->add_parameter("w", value.tensor(group, DDP_F32), nullptr);
    AdamOptions options;
    options.max_norm = 1;  // with the memory that a norm needs on a GPU
    auto adam = std::make_shared<optim::Adam>(model, options, options);
    model->commit(stream.get());
    model->begin_backward(DDP_PASS_REDUCE);
    model->pass().mark_ready(0, stream.get());
    model->end_backward(stream.get());
    adam->step(stream.get());
    stream.synchronize();
    group.barrier();
    std::thread finalizer([&] {
      adam.reset();
      model.reset();
      group.close();
    });
    finalizer.join();
  });
  FakeGpus::expect_correct("a finalizer");
  FakeGpus::expect_nothing_left();
}

ddp_case(memory_of_a_group_goes_with_it) {
  for (const int size : {1, 2}) {
    const FakeGpus gpus;
    ddp_group_options options = world_options();
    options.backend = DDP_BACKEND_NCCL;
    run_gpu_groups_with(size, options, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      void* const memory = group.memory().alloc(kCount * 4);
      expect(fake_gpu::table().fill(memory, 1, kCount * 4, stream.get()) == 0, "work that is under way");
      group.barrier();
    });
    FakeGpus::expect_correct("a group that goes");
    FakeGpus::expect_nothing_left();
  }
}

/// With registered memory the hosts would meet inside NCCL.
/// NCCL gives one code for all that CUDA may have against it.
ddp_case(why_there_is_no_memory_of_nccl_is_told) {
  struct Case {
    int32_t why;  // a ddp_gpu_error_kind; OK: the runtime has the memory
    ddp_status status;
    const char* text;
  };
  for (const Case& each :
       {Case{DDP_GPU_OUT_OF_MEMORY, DDP_ERROR_OUT_OF_MEMORY, "has no 4096 bytes left"},
        Case{DDP_GPU_LOST, DDP_ERROR_PEER_FAILED, "rank 0"}, Case{DDP_GPU_OK, DDP_ERROR_INTERNAL, "unhandled"}}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      nccl::Engine& transport = static_cast<nccl::SharedEngine&>(*group.channels().first().gpu()).engine();
      const GpuArray value(rank, 4);
      group.barrier();
      if (rank == 0) {
        fake_gpu::inject({"nccl.mem_alloc", 1, 1, DDP_NCCL_FAILED, 0});
        if (each.why != DDP_GPU_OK) fake_gpu::inject({"alloc", 1, 1, each.why, 0});
        expect_error(each.status, [&] { static_cast<void>(transport.communicator().alloc(4096)); }, {each.text});
        fake_gpu::clear_faults();
        void* const memory = group.memory().alloc_beside(value.tensor(group, DDP_F32), 4096);
        expect(group.gpu().free(memory), "the next one is given and taken back");
      }
      group.barrier();
    });
  }
}

ddp_case(a_mark_does_not_wait_for_a_late_rank) {
  std::atomic<bool> marked{false};
  run_on_gpus(2, [&](group::Group& group, int rank) {
    ddp_model_options options = SmallGpuModel::options();
    model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    GpuStream stream(rank);
    GpuArray value(rank, kCount * 4);
    model.add_parameter("w", value.tensor(group, DDP_F32), nullptr);  // its gradient is memory of the group
    model.commit(stream.get());
    model.begin_backward(DDP_PASS_REDUCE);
    if (rank == 1) wait_until([&] { return marked.load(); });
    model.pass().mark_ready(0, stream.get());
    marked = true;
    model.end_backward(stream.get());
    stream.synchronize();
  });
}
