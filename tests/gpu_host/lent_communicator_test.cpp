// SPDX-License-Identifier: Apache-2.0
// A communicator that the program has made and lends: it is used, checked, and never ended. And the option nccl_max_ctas.

#include "gpu_host/placed_model.hpp"
#include "gpu_host/small_model.hpp"
#include "group/split.hpp"
#include "optim/adam.hpp"
#include "support/check.hpp"
#include "support/rule_options.hpp"

const ddp_nccl_table& nccl() { return fake_gpu::nccl(); }

std::array<char, DDP_NCCL_ID_BYTES> new_id() {
  std::array<char, DDP_NCCL_ID_BYTES> id{};
  expect(nccl().get_unique_id(id.data()) == 0, "an id");
  return id;
}

/// A communicator of the program, on the calling thread's device.
class OwnComm : NotCopied {
 public:
  OwnComm(int size, const std::array<char, DDP_NCCL_ID_BYTES>& id, int rank) {
    expect(nccl().comm_init(&comm_, size, id.data(), rank, "of the program", 0) < 8, "a communicator");
    settle();
  }
  ~OwnComm() {
    if (comm_ == nullptr) return;
    static_cast<void>(nccl().comm_finalize(comm_));
    settle();
    static_cast<void>(nccl().comm_destroy(comm_));
  }
  void abort() { expect(nccl().comm_abort(std::exchange(comm_, nullptr)) == 0, "its owner aborts it"); }
  /// Until no call is under way.
  void settle() {
    wait_until([&] {
      int32_t result = 0;
      return nccl().comm_async_error(comm_, &result) != 0 || nccl().error_kind(result) != DDP_NCCL_IN_PROGRESS;
    });
  }
  [[nodiscard]] void* get() const noexcept { return comm_; }

 private:
  void* comm_ = nullptr;
};

ddp_group_options options_of(int rank, int size, void* comm) {
  ddp_group_options options = world_options(rank, size);
  options.device_index = rank;
  options.nccl_comm = comm;
  return options;
}

/// body(rank, communicator) on a thread with a GPU for each rank.
void on_ranks_with_comms(int size, const std::function<void(int, OwnComm&)>& body) {
  const auto id = new_id();
  run_ranks(size, [&](int rank) {
    expect(fake_gpu::table().set_device(rank) == 0, "a GPU");
    OwnComm comm(size, id, rank);
    body(rank, comm);
  });
}

void train_with(group::Group& group, int rank) {
  SmallGpuModel world(group, rank);
  for (int step = 0; step < 3; ++step) {
    world.pass();
    const std::vector<float> mean = read_on(world.stream, rank, world.grad.data(), kCount);
    expect(mean == std::vector<float>(kCount, 1.5F), "the mean over the ranks");
  }
  group.all_reduce(world.value.tensor(group, DDP_F32), DDP_SUM, world.stream.get());
  expect_equal(read_on(world.stream, rank, world.value.data(), 1)[0], 2.0F, "a sum");
}

ddp_case(a_lent_communicator_trains_and_stays) {
  for (const int64_t looks : {0, 3}) {  // one that blocks, as ncclCommInitRank makes it, and one that does not
    const FakeGpus gpus(0, looks);
    on_ranks_with_comms(2, [](int rank, OwnComm& comm) {
      {
        const auto group = group::Group::create("local://lent", options_of(rank, 2, comm.get()));
        expect(group->gpu().is_connected(), "it is checked when the group is made");
        train_with(*group, rank);
        group->barrier();
        group->close();
        expect_equal(fake_gpu::pending_on_device(rank), int64_t{0}, "what is enqueued when the group has been left");
      }
      expect_equal(fake_gpu::calls("nccl.comm_init"), int64_t{2}, "communicators made, both by the program");
      for (const char* end : {"nccl.comm_finalize", "nccl.comm_destroy", "nccl.comm_abort"})
        expect_equal(fake_gpu::calls(end, rank), int64_t{0}, end);
      const GpuStream stream(rank);
      GpuArray word(rank, 4);
      word.poke(std::vector<float>{static_cast<float>(rank + 1)});
      static_cast<void>(nccl().all_reduce(word.data(), word.data(), 1, DDP_F32, DDP_GPU_SUM, comm.get(), stream.get()));
      comm.settle();
      stream.synchronize();
      expect_equal(word.peek<float>()[0], 3.0F, "the program goes on with it");
    });
    FakeGpus::expect_clean();
  }
}

void expect_refused(const char* place, const ddp_group_options& options, ddp_status status, const std::string& part) {
  expect_error(status, [&] { static_cast<void>(group::Group::create(place, options)); }, {part});
}

ddp_case(another_rank_size_or_gpu_is_refused_on_all_ranks) {
  const FakeGpus gpus;
  const auto swapped = new_id(), elsewhere = new_id();
  run_ranks(2, [&](int rank) {
    expect(fake_gpu::table().set_device(rank) == 0, "a GPU");
    const OwnComm other(2, swapped, 1 - rank);
    expect_refused("local://swapped", options_of(rank, 2, other.get()), DDP_ERROR_INVALID_ARGUMENT,
                   "nccl_comm is rank 1 of 2, but this is rank 0 of a group of 2");
    const OwnComm alone(1, new_id(), 0);
    expect_refused("local://alone", options_of(rank, 2, alone.get()), DDP_ERROR_INVALID_ARGUMENT, "rank 0 of 1");
    // As a program that was started in the wrong way: each rank is a group of its own.
    expect_refused(nullptr, options_of(0, 1, other.get()), DDP_ERROR_INVALID_ARGUMENT, "of a group of 1");
    expect(fake_gpu::table().set_device(rank + 2) == 0, "another GPU");
    const OwnComm far(2, elsewhere, rank);
    expect_refused("local://far", options_of(rank, 2, far.get()), DDP_ERROR_INVALID_ARGUMENT, "nccl_comm is on GPU 2");
  });
  FakeGpus::expect_clean();
}

ddp_case(all_ranks_lend_one_or_none) {
  const FakeGpus gpus;
  on_ranks_with_comms(2, [](int rank, OwnComm& comm) {
    expect_refused("local://one-lends", options_of(rank, 2, rank == 0 ? comm.get() : nullptr), DDP_ERROR_MISMATCH,
                   "nccl_comm");
  });
  FakeGpus::expect_nothing_left();
}

ddp_case(a_communicator_that_has_failed_or_has_no_library_is_refused) {
  const FakeGpus gpus;
  on_ranks_with_comms(2, [](int rank, OwnComm& comm) {
    if (rank == 1) fake_gpu::set_async_error(1, DDP_NCCL_REMOTE);
    expect_refused("local://failed", options_of(rank, 2, comm.get()), DDP_ERROR_INVALID_ARGUMENT, "has failed");
    if (rank == 1) fake_gpu::set_async_error(1, DDP_NCCL_OK);
    fake_gpu::set_open_nccl_error("this process has not loaded it");
    expect_refused("local://no-library", options_of(rank, 2, comm.get()), DDP_ERROR_NOT_SUPPORTED,
                   "nccl_comm cannot be used: this process has not loaded it");
  });
  FakeGpus::expect_nothing_left();
}

/// Rank 1 leaves without its half of a pass; then rank 0's collective waits on the GPU until its owner aborts it.
ddp_case(a_failure_leaves_it_to_its_owner) {
  const FakeGpus gpus;
  std::atomic<bool> marked{false};
  on_ranks_with_comms(2, [&](int rank, OwnComm& comm) {
    const auto group = group::Group::create("local://broken-lent", options_of(rank, 2, comm.get()));
    SmallGpuModel world(*group, rank);
    world.pass();
    const std::vector<float> before = read_on(world.stream, rank, world.grad.data(), kCount);
    group->barrier();
    if (rank == 1) {
      wait_until([&] { return marked.load(); });
      group->health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
    } else {
      world.model.begin_backward(DDP_PASS_REDUCE);
      world.model.pass().mark_ready(0, world.stream.get());
      marked = true;
      const auto end = [&] { world.model.end_backward(world.stream.get()); };
      expect(ms_of([&] { expect_error(DDP_ERROR_ABORTED, end, {"had enough"}); }) < 3000, "soon");
    }
    expect(ms_of([&] { group->close(); }) < 2200, "left in time");
    expect_equal(fake_gpu::calls("nccl.comm_abort", rank), int64_t{0}, "libddp aborts");
    comm.abort();
    expect(fake_gpu::wait_idle(), "the device comes to an end");
    if (rank == 0) expect(read_on(world.stream, rank, world.grad.data(), kCount) == before, "the gradient is what it was");
  });
  FakeGpus::expect_nothing_left();
}

/// The same with the owner late: memory that can only be freed after a wait for the device is left to the process.
ddp_case(what_hangs_holds_up_no_destroy) {
  const FakeGpus gpus;
  std::atomic<bool> marked{false};
  on_ranks_with_comms(2, [&](int rank, OwnComm& comm) {
    auto group = group::Group::create("local://hanging-lent", options_of(rank, 2, comm.get()));
    auto placed = std::make_unique<PlacedModel>(*group, Home::kGpu);
    AdamOptions rule;
    auto adam = std::make_unique<optim::Adam>(placed->model, rule, rule);
    placed->pass();
    adam->step(placed->stream());
    group->barrier();
    if (rank == 1) {
      wait_until([&] { return marked.load(); });
      group->health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
    } else {
      placed->model->begin_backward(DDP_PASS_REDUCE);
      placed->mark();
      marked = true;
      expect_error(DDP_ERROR_ABORTED, [&] { placed->model->end_backward(placed->stream()); }, {"had enough"});
    }
    const int64_t ms = ms_of([&] {
      adam.reset();
      placed->destroy();
      group->close();
      group.reset();
    });
    expect(ms < 5000, "all of it is destroyed in " + std::to_string(ms) + " ms");
    comm.abort();
  });
  expect(fake_gpu::wait_idle(), "the devices come to an end");
  expect(fake_gpu::live(0).allocations > 0, "what the hanging device may use is kept");
  expect_equal(fake_gpu::live(1).allocations, int64_t{0}, "what the other one has is freed");
  FakeGpus::expect_correct();
}

/// The other one's rank never comes; and the owner is late.
ddp_case(a_group_goes_while_its_lent_communicator_hangs) {
  const FakeGpus gpus;
  const auto first = new_id(), second = new_id();
  run_ranks(2, [&](int rank) {
    expect(fake_gpu::table().set_device(rank) == 0, "a GPU");
    OwnComm one(2, first, rank), two(2, second, rank);
    ddp_group_options options = options_of(rank, 2, rank == 0 ? one.get() : two.get());
    options.rendezvous_timeout_ms = 700;
    const int64_t ms = ms_of([&] {
      try {
        static_cast<void>(group::Group::create("local://two-lent", options));
        expect(false, "it cannot be made");
      } catch (const Error& error) {
        expect(breaks_group(error.status()), error.text());
        if (error.status() == DDP_ERROR_TIMED_OUT) expect_contains(error.text(), "one and the same");
      }
    });
    expect(ms < 6000, "bounded: " + std::to_string(ms) + " ms");
    one.abort();
    two.abort();
  });
  expect(fake_gpu::wait_idle(), "the devices come to an end");
}

ddp_case(a_sub_group_makes_its_own) {
  const FakeGpus gpus;
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);  // there are two communicators
  on_ranks_with_comms(2, [](int rank, OwnComm& comm) {
    const auto group = group::Group::create("local://split-lent", options_of(rank, 2, comm.get()));
    ddp_group_options options = group->options();
    options.nccl_comm = nullptr;  // as ddp_group_split does
    const auto half = group::split_group(*group, {0, 1 - rank}, options);
    expect_equal(half->rank(), 1 - rank, "the other way round");
    SmallGpuModel world(*half, rank);
    world.pass();
    expect_equal(read_on(world.stream, rank, world.grad.data(), 1)[0], 1.5F, "the mean");
    group->barrier();
  });
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  FakeGpus::expect_clean();
}

ddp_case(max_ctas_come_to_nccl_and_are_equal) {
  for (const int32_t most : {0, 4}) {
    const FakeGpus gpus;
    ddp_group_options options = world_options();
    options.backend = DDP_BACKEND_NCCL;
    options.nccl_max_ctas = most;
    run_gpu_groups_with(2, options, [&](group::Group& group, int) {
      expect(fake_gpu::max_ctas() == std::vector<int32_t>{most, most}, "what NCCL gets");
      group.barrier();
    });
    FakeGpus::expect_nothing_left();
  }
  const FakeGpus gpus;
  run_ranks(2, [](int rank) {
    ddp_group_options options = options_of(rank, 2, nullptr);
    options.nccl_max_ctas = rank + 1;
    expect_refused("local://ctas", options, DDP_ERROR_MISMATCH, "nccl_max_ctas 2");
  });
}
