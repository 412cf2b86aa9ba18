// What a group with GPUs does when a rank, a GPU, NCCL or its connections fail: a named error on every rank within bounds,
// nothing written that should not be, nothing left.
#include "collective/nccl/nccl_transport.hpp"
#include "model/model.hpp"
#include "optim/rules.hpp"
#include "optim/sgd.hpp"
#include "os/clock.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {
namespace {

constexpr int64_t kCount = 5000;

/// A model of one parameter, its gradient in memory of the program.
struct SmallModel {
  GpuStream stream;
  GpuArray value, grad, fresh;
  model::Model model;

  SmallModel(group::Group& group, int rank)
      : stream(rank),
        value(rank, kCount * 4),
        grad(rank, kCount * 4),
        fresh(rank, kCount * 4),
        model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options()) {
    value.poke(std::vector<float>(kCount, 1));
    fresh.poke(std::vector<float>(kCount, static_cast<float>(rank + 1)));
    const Tensor lent = grad.tensor(group, DDP_F32);
    model.add_parameter("w", value.tensor(group, DDP_F32), &lent);
    model.commit(stream.get());
  }
  static ddp_model_options options() {
    ddp_model_options made{};
    made.first_bucket_bytes = made.bucket_bytes = 1 << 20;
    return made;
  }
  void pass() {
    model.begin_backward(DDP_PASS_REDUCE);
    write_on(stream.get(), fresh, grad.data());
    model.pass().mark_ready(0, stream.get());
    model.end_backward(stream.get());
  }
};

int64_t ms_of(const std::function<void()>& body) {
  const int64_t begin = os::now_ns();
  body();
  return (os::now_ns() - begin) / 1'000'000;
}

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

void an_error_that_nccl_reports_breaks_the_group_within_a_second(void**) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallModel world(group, rank);
    world.pass();
    world.stream.synchronize();
    group.barrier();
    if (rank == 0) fake_gpu::set_async_error(1, DDP_NCCL_REMOTE);
    std::string text;
    expect(ms_of([&] { text = first_error(group, DDP_ERROR_PEER_FAILED); }) < 3000, "soon");
    expect_contains(text, "NCCL");
    expect_contains(text, "rank 1");
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

/// Rank 1 leaves without its half of a pass; rank 0's collective never ends by itself.
void what_a_broken_collective_leaves_reaches_no_gradient(void**) {
  const FakeGpus gpus;
  std::atomic<bool> marked{false};
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallModel world(group, rank);
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
    expect_contains(expect_error(DDP_ERROR_ABORTED, [&] { world.model.end_backward(world.stream.get()); }), "had enough");
    expect(fake_gpu::wait_idle(), "the device comes to an end");
    expect(read_on(world.stream, rank, world.grad.data(), kCount) == before, "the gradient is what it was");
  });
  FakeGpus::expect_nothing_left();
}

/// The pass ended well for the hosts; then rank 1's device never comes, and rank 1 goes away.
void an_update_behind_a_broken_collective_changes_nothing(void**) {
  const FakeGpus gpus;
  std::atomic<bool> ended{false};
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallModel world(group, rank);
    world.pass();
    world.stream.synchronize();
    group.barrier();
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
}

void a_lost_gpu_is_named_on_every_rank(void**) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallModel world(group, rank);
    world.pass();
    world.stream.synchronize();
    group.barrier();
    if (rank == 1) {
      fake_gpu::lose_device(1);
      expect_contains(expect_error(DDP_ERROR_PEER_FAILED,
                                   [&] {
                                     world.model.begin_backward(DDP_PASS_REDUCE);
                                     world.model.pass().mark_ready(0, world.stream.get());
                                     world.model.end_backward(world.stream.get());
                                   }),
                      "restart");
    }
    expect_contains(first_error(group, DDP_ERROR_PEER_FAILED), "rank 1");
  });
}

void work_that_does_not_end_is_a_time_out(void**) {
  const FakeGpus gpus;
  ddp_group_options options = world_options();
  options.timeout_ms = 700;
  run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
    SmallModel world(group, rank);
    world.pass();
    world.stream.synchronize();
    group.barrier();
    if (rank == 1) fake_gpu::pause_device(1);
    world.pass();
    expect_contains(first_error(group, DDP_ERROR_TIMED_OUT), "timeout_ms");
    fake_gpu::resume_device(1);
  });
  FakeGpus::expect_nothing_left();
}

/// A collective that the other rank will never join, because it has left in good order.
void a_collective_that_nobody_joins_ends_when_the_time_is_up(void**) {
  const FakeGpus gpus;
  std::atomic<bool> enqueued{false};
  ddp_group_options options = world_options();
  options.timeout_ms = 700;
  run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
    SmallModel world(group, rank);
    world.pass();
    world.stream.synchronize();
    group.barrier();
    if (rank == 1) {
      wait_until([&] { return enqueued.load(); });
      return group.close();
    }
    nccl::NcclTransport& side = group.gpu().nccl();
    side.order_after(world.stream.get());
    side.communicator().all_reduce(world.grad.data(), world.grad.data(), kCount, DDP_F32, DDP_GPU_SUM, side.stream());
    side.order_before(world.stream.get());
    enqueued = true;
    expect(ms_of([&] { world.stream.synchronize(); }) < 5000, "the stream ends in time");
  });
}

void a_lost_gpu_in_a_step_ends_the_group(void**) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    SmallModel world(group, rank);
    const auto model = std::shared_ptr<model::Model>(&world.model, [](model::Model*) {});
    optim::Sgd sgd(model, optim::default_sgd_options(), optim::default_optimizer_options());
    world.pass();
    sgd.step(world.stream.get());
    world.stream.synchronize();
    group.barrier();
    world.pass();
    if (rank == 1) {
      fake_gpu::lose_device(1);
      expect_contains(expect_error(DDP_ERROR_PEER_FAILED, [&] { sgd.step(world.stream.get()); }), "restart");
    }
    expect_contains(first_error(group, DDP_ERROR_PEER_FAILED), "rank 1");
  });
}

void a_rank_that_does_not_connect_is_a_time_out_and_not_a_hang(void**) {
  const FakeGpus gpus;
  fake_gpu::delay_nccl(fake_gpu::NcclCall::kInit, 1, -1);
  run_ranks(2, [&](int rank) {
    ddp_group_options options = world_options();
    options.backend = DDP_BACKEND_NCCL;
    options.rendezvous_timeout_ms = 800;
    options.rank = rank;
    options.world_size = 2;
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

/// Rank 1 has said that it can, and ends while NCCL connects: the others are told at once, long before the time is up.
void a_rank_that_ends_while_nccl_connects_is_named_at_once(void**) {
  for (const int64_t looks : {0, 3}) {  // NCCL that blocks, as NCCL_COMM_BLOCKING=1 makes it, and NCCL that does not
    const FakeGpus gpus(0, looks);
    fake_gpu::delay_nccl(fake_gpu::NcclCall::kInit, 1, -1);
    run_ranks(2, [&](int rank) {
      ddp_group_options options = world_options();
      options.rendezvous_timeout_ms = 30'000;
      options.rank = rank;
      options.world_size = 2;
      options.device_index = rank;
      const auto group = group::Group::create("local://ends-in-nccl", options);
      std::thread ends;
      if (rank == 1)
        ends = std::thread([&] {
          wait_until([] { return fake_gpu::calls("nccl.comm_init") == 2; });
          group->abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
        });
      const int64_t ms = ms_of([&] {
        expect_contains(expect_error(DDP_ERROR_ABORTED, [&] { static_cast<void>(group->nccl_transport()); }), "had enough");
      });
      expect(ms < 1500, "soon: " + std::to_string(ms) + " ms");
      if (ends.joinable()) ends.join();
    });
    FakeGpus::expect_correct();
  }
}

void leaving_is_bounded_when_nccl_blocks(void**) {
  for (const fake_gpu::NcclCall call : {fake_gpu::NcclCall::kFinalize, fake_gpu::NcclCall::kDestroy}) {
    const FakeGpus gpus;
    run_gpu_groups(2, [&](group::Group& group, int rank) {
      SmallModel world(group, rank);
      world.pass();
      world.stream.synchronize();
      group.barrier();
      fake_gpu::delay_nccl(call, rank, 2500);
      expect(ms_of([&] { group.close(); }) < 2200, "left in time");
    });
  }
}

/// A pass is enqueued on both ranks, and the models go while the devices have not come to it.
void a_model_may_go_while_its_pass_is_under_way(void**) {
  for (const bool shard : {false, true}) {
    const FakeGpus gpus;
    run_gpu_groups(2, [&](group::Group& group, int rank) {
      auto world = std::make_unique<SmallModel>(group, rank);
      const auto model = std::shared_ptr<model::Model>(&world->model, [](model::Model*) {});
      SgdOptions options;
      options.shard = shard ? 1 : 0;
      auto sgd = std::make_shared<optim::Sgd>(model, options, options);
      if (shard) model->attach(sgd);
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

/// With registered memory the hosts would meet inside NCCL.
void a_mark_does_not_wait_for_a_late_rank(void**) {
  const FakeGpus gpus;
  std::atomic<bool> marked{false};
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    ddp_model_options options = SmallModel::options();
    model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    GpuStream stream(rank);
    GpuArray value(rank, kCount * 4);
    model.add_parameter("w", value.tensor(group, DDP_F32), nullptr);  // its gradient is memory of the group
    model.commit(stream.get());
    model.begin_backward(DDP_PASS_REDUCE);
    if (rank == 1) wait_until([&] { return marked.load(); });
    model.mark_ready(0, stream.get());
    marked = true;
    model.end_backward(stream.get());
    stream.synchronize();
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

/// Every call of the runtime and of NCCL in a pass fails once: an error, or a pass that was right; and the ranks agree about
/// the group.
void every_call_of_a_pass_may_fail(void**) {
  for (const char* const function :
       {"event_record", "stream_wait", "move", "copy", "nccl.all_reduce", "set_device", "get_device", "stream_is_capturing"})
    for (int64_t nth = 1; nth <= 6; ++nth) {
      const FakeGpus gpus;
      run_gpu_groups(2, [&](group::Group& group, int rank) {
        SmallModel world(group, rank);
        world.pass();
        world.stream.synchronize();
        group.barrier();
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
          expect_equal(world.grad.peek<float>()[0], 1.5F, std::string(function) + " " + std::to_string(nth) + ": the mean");
        }
      });
    }
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(an_error_that_nccl_reports_breaks_the_group_within_a_second),
      ddp_test(what_a_broken_collective_leaves_reaches_no_gradient),
      ddp_test(an_update_behind_a_broken_collective_changes_nothing),
      ddp_test(a_lost_gpu_is_named_on_every_rank),
      ddp_test(work_that_does_not_end_is_a_time_out),
      ddp_test(a_collective_that_nobody_joins_ends_when_the_time_is_up),
      ddp_test(a_lost_gpu_in_a_step_ends_the_group),
      ddp_test(a_rank_that_does_not_connect_is_a_time_out_and_not_a_hang),
      ddp_test(a_rank_that_ends_while_nccl_connects_is_named_at_once),
      ddp_test(leaving_is_bounded_when_nccl_blocks),
      ddp_test(a_model_may_go_while_its_pass_is_under_way),
      ddp_test(a_mark_does_not_wait_for_a_late_rank),
      ddp_test(every_call_of_a_pass_may_fail),
  };
  return cmocka_run_group_tests_name("gpu_failure", tests, nullptr, nullptr);
}
