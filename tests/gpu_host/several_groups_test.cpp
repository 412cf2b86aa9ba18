// SPDX-License-Identifier: Apache-2.0
// Several groups whose collectives run on one GPU: they run in one order on all ranks, and hosts that use the groups in
// different orders find out.

#include "gpu_host/small_model.hpp"
#include "group/split.hpp"
#include "support/check.hpp"

constexpr const char* kVariable = "NCCL_LAUNCH_ORDER_IMPLICIT";

/// GPUs on which one collective has room at a time.
class FullGpus : NotCopied {
 public:
  FullGpus() {
    fake_gpu::Options options;
    options.nccl_looks = 3;
    options.nccl_at_once = 1;
    fake_gpu::reset(options);
    gpu::set_table(&fake_gpu::table());
  }
  ~FullGpus() { gpu::set_table(nullptr); }
};

/// body(two groups of the same ranks, rank).
void run_two_groups(int size, const std::function<void(group::Group&, group::Group&, int)>& body) {
  run_gpu_groups(size, [&](group::Group& first, int rank) {
    ddp_group_options options = first.options();
    const auto second = group::split_group(first, {0, rank}, options);
    first.gpu().connect();
    second->gpu().connect();
    body(first, *second, rank);
    if (!first.health().has_fault()) first.barrier();
  });
}

/// Rank 0's GPU comes to the collective of the first group first, rank 1's to that of the second: each would wait for the
/// other one, and leave the other one no room.
ddp_case(gpus_run_the_collectives_of_two_groups_in_one_order) {
  const FullGpus gpus;
  run_two_groups(2, [](group::Group& first, group::Group& second, int rank) {
    const GpuStream one(rank), two(rank);
    GpuArray a(rank, kCount * 4), b(rank, kCount * 4);
    a.poke(std::vector<float>(kCount, 1));
    b.poke(std::vector<float>(kCount, 2));
    first.barrier();
    void* const held = rank == 0 ? two.get() : one.get();
    fake_gpu::pause(held);
    first.all_reduce(a.tensor(first, DDP_F32), DDP_SUM, one.get());
    second.all_reduce(b.tensor(second, DDP_F32), DDP_SUM, two.get());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which the wrong one could begin
    first.barrier();
    fake_gpu::resume(held);
    const bool ended = fake_gpu::wait_idle(5000);
    if (!ended) first.health().abort(Error(DDP_ERROR_ABORTED, "they wait for each other"));
    expect(ended, "both collectives end");
    expect(a.peek<float>() == std::vector<float>(kCount, 2) && b.peek<float>() == std::vector<float>(kCount, 4), "the sums");
  });
  FakeGpus::expect_clean();
}

/// What the first group has enqueued when the second one comes counts too.
ddp_case(a_group_that_comes_later_waits_for_what_is_under_way) {
  const FullGpus gpus;
  run_gpu_groups(2, [](group::Group& first, int rank) {
    const GpuStream stream(rank);
    GpuArray a(rank, kCount * 4);
    a.poke(std::vector<float>(kCount, 1));
    first.gpu().connect();
    first.barrier();
    if (rank == 1) fake_gpu::pause(stream.get());
    first.all_reduce(a.tensor(first, DDP_F32), DDP_SUM, stream.get());
    std::thread goes_on([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (rank == 1) fake_gpu::resume(stream.get());
    });
    ddp_group_options options = first.options();
    options.rendezvous_timeout_ms = 5000;
    const auto second = group::split_group(first, {0, rank}, options);
    second->gpu().connect();
    goes_on.join();
    stream.synchronize();
    expect(a.peek<float>() == std::vector<float>(kCount, 2), "the sum");
    first.barrier();
  });
  FakeGpus::expect_clean();
}

ddp_case(two_models_in_two_groups_train_beside_each_other) {
  const FullGpus gpus;
  run_two_groups(2, [](group::Group& first, group::Group& second, int rank) {
    SmallGpuModel a(first, rank), b(second, rank);
    for (int step = 0; step < 5; ++step) {
      a.model.begin_backward(DDP_PASS_REDUCE);
      write_on(a.stream.get(), a.fresh, a.grad.data());
      b.pass();
      a.model.pass().mark_ready(0, a.stream.get());
      a.model.end_backward(a.stream.get());
      for (SmallGpuModel* const each : {&a, &b})
        expect(read_on(each->stream, rank, each->grad.data(), kCount) == std::vector<float>(kCount, 1.5F), "the mean");
    }
  });
  FakeGpus::expect_clean();
}

ddp_case(a_call_that_comes_at_another_point_of_a_pass_is_a_mismatch) {
  const FakeGpus gpus;
  run_two_groups(2, [](group::Group& first, group::Group& second, int rank) {
    SmallGpuModel world(first, rank);
    const GpuStream stream(rank);
    GpuArray sum(rank, kCount * 4);
    world.pass();
    first.barrier();
    world.model.begin_backward(DDP_PASS_REDUCE);
    if (rank == 0) world.model.pass().mark_ready(0, world.stream.get());
    const auto call = [&] { second.all_reduce(sum.tensor(second, DDP_F32), DDP_SUM, stream.get()); };
    expect_error(DDP_ERROR_DIFFERENT_CALLS, call, {"different orders", "all-reduce"});
    first.health().abort(Error(DDP_ERROR_ABORTED, "that was it"));
  });
}

ddp_case(passes_that_mark_in_different_orders_are_a_mismatch) {
  const FakeGpus gpus;
  std::atomic<int> told{0};
  run_gpu_groups(2, [&](group::Group& first, int rank) {
    const auto second = group::split_group(first, {0, rank}, first.options());
    SmallGpuModel a(first, rank), b(*second, rank);
    a.pass();
    b.pass();
    first.barrier();
    SmallGpuModel& early = rank == 0 ? a : b;
    SmallGpuModel& late = rank == 0 ? b : a;
    for (SmallGpuModel* const each : {&a, &b}) each->model.begin_backward(DDP_PASS_REDUCE);
    for (SmallGpuModel* const each : {&early, &late}) each->model.pass().mark_ready(0, each->stream.get());
    expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { a.model.end_backward(a.stream.get()); }, {"different orders"});
    ++told;
    wait_until([&] { return told == 2; });
    second->health().abort(Error(DDP_ERROR_ABORTED, "that was it"));
  });
}

/// Groups of which not all ranks are in the other one have no order to compare, and work all the same.
ddp_case(a_group_and_its_halves_work_on_the_same_gpus) {
  const FullGpus gpus;
  run_gpu_groups(3, [](group::Group& all, int rank) {
    all.gpu().connect();
    const auto half = group::split_group(all, {rank / 2, rank}, all.options());
    SmallGpuModel wide(all, rank), narrow(*half, rank);
    const float mean = rank < 2 ? 1.5F : 3.0F;
    for (int step = 0; step < 3; ++step) {
      wide.pass();
      if (rank < 2) narrow.pass();  // the third rank's half is that rank alone
      expect_equal(read_on(wide.stream, rank, wide.grad.data(), 1)[0], 2.0F, "the mean of all");
      if (rank < 2) expect_equal(read_on(narrow.stream, rank, narrow.grad.data(), 1)[0], mean, "the mean of the half");
    }
    all.barrier();
  });
  FakeGpus::expect_clean();
}

/// Ranks leave a group when they like, and their earlier work in it counts as before.
ddp_case(groups_come_and_go_beside_a_pass) {
  const FullGpus gpus;
  run_gpu_groups(2, [](group::Group& first, int rank) {
    SmallGpuModel world(first, rank);
    const GpuStream stream(rank);
    GpuArray sum(rank, kCount * 4);
    std::shared_ptr<group::Group> former;
    for (int round = 0; round < 4; ++round) {
      if (rank == 0) former.reset();
      ddp_group_options options = first.options();
      options.backend = DDP_BACKEND_NCCL;  // rank 1 still has the former group when NCCL starts
      const auto second = group::split_group(first, {0, rank}, options);
      former = second;
      for (int step = 0; step <= round; ++step) {
        second->all_reduce(sum.tensor(*second, DDP_F32), DDP_SUM, stream.get());
        world.pass();
      }
      expect_equal(read_on(world.stream, rank, world.grad.data(), 1)[0], 1.5F, "the mean");
    }
    first.barrier();
  });
  FakeGpus::expect_clean();
}

/// Captured work waits for no work outside of the capture, and for earlier work in the same capture.
ddp_case(a_captured_pass_holds_the_calls_of_another_group) {
  const FakeGpus gpus;
  run_two_groups(2, [](group::Group& first, group::Group& second, int rank) {
    SmallGpuModel world(first, rank);
    GpuArray sum(rank, kCount * 4);
    sum.poke(std::vector<float>(kCount, 1));
    void* const stream = world.stream.get();
    const auto pass = [&] {
      world.model.begin_backward(DDP_PASS_REDUCE);
      write_on(stream, world.fresh, world.grad.data());
      second.all_reduce(sum.tensor(second, DDP_F32), DDP_SUM, stream);
      world.model.pass().mark_ready(0, stream);
      world.model.end_backward(stream);
    };
    pass();
    world.stream.synchronize();
    first.barrier();
    const fake_gpu::GraphPtr graph = capture(stream, pass);
    for (int replay = 0; replay < 2; ++replay) fake_gpu::launch_graph(graph, stream);
    pass();
    world.stream.synchronize();
    expect_equal(sum.peek<float>()[0], 16.0F, "four sums of two");
    expect_equal(world.grad.peek<float>()[0], 1.5F, "the mean");
  });
  FakeGpus::expect_clean();
}

/// It would not run in one order on all ranks; the first group continues.
ddp_case(a_second_group_is_refused_where_nccl_keeps_no_order) {
  const struct {
    int32_t version;
    const char *variable, *text;
  } cases[] = {{22809, nullptr, "NCCL 22809, without the variable"},
               {22809, "0", "NCCL 22809, without the variable"},
               {22505, "1", "NCCL 22505, which has no such order"}};
  for (const auto& each : cases) {
    each.variable != nullptr ? setenv(kVariable, each.variable, 1) : unsetenv(kVariable);
    fake_gpu::Options options;
    options.nccl_looks = 3;
    options.nccl_version = each.version;
    fake_gpu::reset(options);
    gpu::set_table(&fake_gpu::table());
    run_gpu_groups(2, [&](group::Group& first, int rank) {
      SmallGpuModel world(first, rank);
      world.pass();
      {
        const auto second = group::split_group(first, {0, rank}, first.options());
        expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { second->gpu().connect(); }, {each.text, "NCCL_LAUNCH_ORDER_IMPLICIT=1"});
        second->barrier();
      }
      world.pass();
      expect_equal(read_on(world.stream, rank, world.grad.data(), 1)[0], 1.5F, "the mean");
      first.barrier();
    });
    run_gpu_groups(2, [](group::Group& alone, int rank) {
      SmallGpuModel world(alone, rank);
      world.pass();
      expect_equal(read_on(world.stream, rank, world.grad.data(), 1)[0], 1.5F, "the mean in a group that came later");
      alone.barrier();
    });
    FakeGpus::expect_clean();
    gpu::set_table(nullptr);
  }
  setenv(kVariable, "1", 1);
}

/// A group that broke has no more collectives, also while its object is there.
ddp_case(a_new_group_may_come_beside_one_that_broke) {
  unsetenv(kVariable);
  run_on_gpus(2, [](group::Group& first, int rank) {
    SmallGpuModel world(first, rank);
    world.pass();
    first.barrier();
    if (rank == 0) static_cast<void>(try_to([&] { first.health().abort(Error(DDP_ERROR_ABORTED, "that was it")); }));
    wait_until([&] { return first.health().has_fault(); });
    ddp_group_options options = first.options();
    options.rank = rank;
    options.world_size = 2;
    const auto next = group::Group::create("local://beside-a-broken-one", options);
    SmallGpuModel other(*next, rank);
    other.pass();
    expect_equal(read_on(other.stream, rank, other.grad.data(), 1)[0], 1.5F, "the mean");
    next->barrier();
  });
  setenv(kVariable, "1", 1);
}

ddp_before_cases(setenv(kVariable, "1", 1));
