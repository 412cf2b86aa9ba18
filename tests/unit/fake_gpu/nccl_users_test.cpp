// SPDX-License-Identifier: Apache-2.0
// NCCL of the fake GPU with several users: the properties of a communicator, and two that block each other.

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

fake_gpu_case(a_communicator_says_whose_it_is) {
  on_world(3, [](int32_t rank, void* comm) {
    int32_t size = 0, number = 0, device = 0;
    check_equal(n.comm_count(comm, &size), 0);
    check_equal(n.comm_user_rank(comm, &number), 0);
    check_equal(n.comm_device(comm, &device), 0);
    check(size == 3 && number == rank && device == rank);
  });
  int32_t size = 0;
  check_equal(n.error_kind(n.comm_count(&size, &size)), DDP_NCCL_BAD_ARGUMENT);
}

/// Rank 0 begins that of the first communicator, rank 1 that of the second, and then comes the other one.
void on_crossed_worlds(const std::function<void(void*, void*)>& then) {
  const Id first = make_id(), second = make_id();
  std::atomic<int> begun{0};
  on_ranks(2, [&](int32_t rank) {
    void *one = nullptr, *two = nullptr;
    check_equal(n.comm_init(&one, 2, &first, rank, "", 0), 0);
    check_equal(n.comm_init(&two, 2, &second, rank, "", 0), 0);
    float* const data = make_array<float>({1, 2});
    const auto sum = [&](void* comm, float* at) {
      check_equal(n.all_reduce(at, at, 1, DDP_F32, DDP_GPU_SUM, comm, make_stream()), 0);
    };
    sum(rank == 0 ? one : two, data);
    while (running_collectives(rank) == 0) std::this_thread::yield();
    ++begun;
    while (begun < 2) std::this_thread::yield();
    sum(rank == 0 ? two : one, data + 1);
    then(one, two);
  });
}

fake_gpu_case(a_device_without_room_lets_crossed_collectives_hang) {
  on_crossed_worlds([](void* one, void* two) {
    check(wait_idle());
    for (void* const comm : {one, two}) {
      check_equal(n.comm_finalize(comm), 0);
      check_equal(n.comm_destroy(comm), 0);
    }
  });
  reset(Options{.nccl_at_once = 1});
  std::atomic<int> looked{0};
  on_crossed_worlds([&looked](void* one, void* two) {
    check(!wait_idle(100));
    check_equal(collectives(), 0);
    ++looked;  // what one rank aborts makes room for the other collective
    while (looked < 2) std::this_thread::yield();
    for (void* const comm : {one, two}) check_equal(n.comm_abort(comm), 0);
  });
  check(wait_idle());
}
