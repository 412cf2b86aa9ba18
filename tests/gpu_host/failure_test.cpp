// SPDX-License-Identifier: Apache-2.0
// What a group with GPUs does when a rank, a GPU, NCCL or its connections fail: a named error on every rank within bounds,
// nothing written that should not be, nothing left.
#include "gpu_host/small_model.hpp"
#include "group/channels.hpp"
#include "nccl/shared_engine.hpp"
#include "optim/rules.hpp"
#include "optim/sgd.hpp"
#include "support/check.hpp"

/// Calls until the group is known to be broken.
std::string first_error(group::Group& group, ddp_status status) {
  std::string text;
  wait_until([&] {
    try {
      group.health().check_usable();
    } catch (const Error& error) {
      expect_equal(static_cast<int>(error.status()), static_cast<int>(status), "the status (" + error.text() + ")");
      text = error.text();
    }
    return !text.empty();
  });
  return text;
}

ddp_ranks_case(run_on_gpus, an_error_that_nccl_reports_breaks_the_group_within_a_second, 2) {
  SmallGpuModel world(group, rank);
  world.first_pass();
  if (rank == 0) fake_gpu::set_async_error(1, DDP_NCCL_REMOTE);
  std::string text;
  expect(ms_of([&] { text = first_error(group, DDP_ERROR_PEER_FAILED); }) < 3000, "soon");
  expect_contains(text, "NCCL");
  expect_contains(text, "rank 1");
}

/// Rank 1 leaves without its half of a pass; rank 0's collective never ends by itself.
ddp_case(what_a_broken_collective_leaves_reaches_no_gradient) {
  each_adder([](const ddp_group_options& options) {
    const FakeGpus gpus;
    std::atomic<bool> marked{false};
    run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
      SmallGpuModel world(group, rank);
      world.pass();
      world.stream.synchronize();
      const std::vector<float> before = read_on(world.stream, rank, world.grad.data(), kCount);
      expect_equal(before[0], 1.5F, "the mean");
      group.barrier();
      if (rank == 1) {
        wait_until([&] { return marked.load(); });
        group.health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
        return;
      }
      world.model.begin_backward(DDP_PASS_REDUCE);
      world.model.pass().mark_ready(0, world.stream.get());
      marked = true;
      expect_error(DDP_ERROR_ABORTED, [&] { world.model.end_backward(world.stream.get()); }, {"had enough"});
      expect(fake_gpu::wait_idle(), "the device comes to an end");
      expect(read_on(world.stream, rank, world.grad.data(), kCount) == before, "the gradient is what it was");
    });
    FakeGpus::expect_nothing_left();
  });
}

/// The pass ended well for the hosts; then rank 1's device never comes, and rank 1 goes away.
ddp_case(an_update_behind_a_broken_collective_changes_nothing) {
  each_adder([](const ddp_group_options& options) {
    const FakeGpus gpus;
    std::atomic<bool> ended{false};
    run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
      SmallGpuModel world(group, rank);
      world.first_pass();
      if (rank == 1) fake_gpu::pause_device(1);
      group.barrier();
      world.pass();
      group.barrier();
      if (rank == 1) {
        group.health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
        wait_until([&] { return ended.load(); });
        fake_gpu::resume_device(1);
        return;
      }
      first_error(group, DDP_ERROR_ABORTED);
      // The program, which does not know yet, has an update enqueued that believes in the gradient.
      const ddp_gpu_span span{world.grad.data(), world.value.data(), kCount};
      expect(fake_gpu::table().move(&span, 1, DDP_F32, DDP_F32, 1, std::numeric_limits<double>::infinity(),
                                    group.gpu().stop_on(world.stream.get()), world.stream.get()) == 0,
             "an update");
      world.stream.synchronize();
      expect(world.value.peek<float>() == std::vector<float>(kCount, 1), "the parameter is what it was");
      ended = true;
    });
    FakeGpus::expect_nothing_left();
  });
}

/// NCCL lacks the rank that left, and reports it; no other part does.
ddp_case(a_rank_that_left_ends_nothing_on_the_others) {
  const FakeGpus gpus;
  std::atomic<bool> left{false};
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallGpuModel world(group, rank);
    world.first_pass();
    if (rank == 1) {
      group.close();
      fake_gpu::set_async_error(0, DDP_NCCL_REMOTE);
      left = true;
      return;
    }
    wait_until([&] { return left.load(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // longer than NCCL's trouble is kept back
    expect(!group.health().has_fault(), "what needs nobody goes on");
    group.health().check_no_fault();
    expect_error(DDP_ERROR_ABORTED, [&] { group.barrier(); });
  });
}

ddp_case(a_lost_gpu_is_named_on_every_rank) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallGpuModel world(group, rank);
    world.first_pass();
    if (rank == 1) {
      fake_gpu::lose_device(1);
      expect_error(DDP_ERROR_PEER_FAILED,
                   [&] {
                     world.model.begin_backward(DDP_PASS_REDUCE);
                     world.model.pass().mark_ready(0, world.stream.get());
                     world.model.end_backward(world.stream.get());
                   },
                   {"restart"});
    }
    expect_contains(first_error(group, DDP_ERROR_PEER_FAILED), "rank 1");
  });
}

ddp_case(work_that_does_not_end_is_a_time_out) {
  const FakeGpus gpus;
  ddp_group_options options = world_options();
  options.timeout_ms = 700;
  run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
    SmallGpuModel world(group, rank);
    world.first_pass();
    if (rank == 1) fake_gpu::pause_device(1);
    world.pass();
    expect_contains(first_error(group, DDP_ERROR_TIMED_OUT), "timeout_ms");
    fake_gpu::resume_device(1);
  });
  FakeGpus::expect_nothing_left();
}

/// A collective that the other rank will never join, because it has left in good order.
ddp_case(a_collective_that_nobody_joins_ends_when_the_time_is_up) {
  const FakeGpus gpus;
  std::atomic<bool> enqueued{false};
  ddp_group_options options = world_options();
  options.timeout_ms = 700;
  run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
    SmallGpuModel world(group, rank);
    world.first_pass();
    if (rank == 1) {
      wait_until([&] { return enqueued.load(); });
      return group.close();
    }
    nccl::Engine& side = static_cast<nccl::SharedEngine&>(*group.channels().first().gpu()).engine();
    side.order_after(world.stream.get());
    side.communicator().all_reduce(world.grad.data(), world.grad.data(), kCount, DDP_F32, DDP_GPU_SUM, side.stream());
    side.order_before(world.stream.get());
    enqueued = true;
    expect(ms_of([&] { world.stream.synchronize(); }) < 5000, "the stream ends in time");
  });
}

ddp_case(a_lost_gpu_in_a_step_ends_the_group) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallGpuModel world(group, rank);
    const auto model = std::shared_ptr<model::Model>(&world.model, [](model::Model*) {});
    optim::Sgd sgd(model, optim::default_sgd_options(), optim::default_optimizer_options());
    world.pass();
    sgd.step(world.stream.get());
    world.stream.synchronize();
    group.barrier();
    world.pass();
    if (rank == 1) {
      fake_gpu::lose_device(1);
      expect_error(DDP_ERROR_PEER_FAILED, [&] { sgd.step(world.stream.get()); }, {"restart"});
    }
    expect_contains(first_error(group, DDP_ERROR_PEER_FAILED), "rank 1");
  });
}

/// Every call of the runtime and of NCCL in a pass fails once: an error, or a pass that was right; and the ranks agree about
/// the group.
ddp_case(every_call_of_a_pass_may_fail) {
  each_adder([](const ddp_group_options& options) {
    for (const char* const function : {"event_record", "stream_wait", "move", "copy_word", "nccl.all_reduce", "set_device",
                                       "get_device", "stream_is_capturing", "move_quotient", "tree_sum", "nccl.group_start",
                                       "nccl.send", "nccl.receive", "nccl.group_end", "nccl.all_gather"})
      for (int64_t nth = 1; nth <= (function[0] == 'n' || function[0] == 't' ? 2 : 6); ++nth) {
        const FakeGpus gpus;  // a call that fails within NCCL may leave a violation
        run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
          SmallGpuModel world(group, rank);
          world.first_pass();
          fake_gpu::Fault fault;
          fault.function = function;
          fault.nth = nth;
          fault.kind = std::string(function).rfind("nccl.", 0) == 0 ? int32_t{DDP_NCCL_FAILED} : int32_t{DDP_GPU_OTHER};
          fault.device = 1;
          write_on(world.stream.get(), world.fresh, world.grad.data());
          group.barrier();
          if (rank == 1) fake_gpu::inject(fault);
          group.barrier();
          bool failed = false;
          try {
            world.model.begin_backward(DDP_PASS_REDUCE);
            world.model.pass().mark_ready(0, world.stream.get());
            world.model.end_backward(world.stream.get());
          } catch (const Error& error) {
            failed = true;
            expect(!error.text().empty(), "it says why");
          }
          fake_gpu::clear_faults();
          if (!failed && rank == 1) {
            world.stream.synchronize();
            expect_equal(world.grad.peek<float>()[0], 1.5F,
                         std::string(function) + " " + std::to_string(nth) + ": the mean");
          }
        });
      }
  });
}
