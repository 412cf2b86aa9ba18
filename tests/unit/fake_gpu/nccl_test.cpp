// SPDX-License-Identifier: Apache-2.0
// NCCL of the fake GPU: results, what ranks must agree on, aborting.

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

fake_gpu_case(a_sum_is_the_sum_of_all_ranks) {
  on_world(3, [](int32_t rank, void* comm) {
    const auto r = static_cast<float>(rank);
    float* const data = make_array<float>({1 + r, 10 * r});
    check_equal(n.all_reduce(data, data, 2, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check(values_of(data, 2) == (std::vector<float>{6, 30}));
  });
  check_equal(collectives(), 1);
  check_equal(live().communicators, 0);
}

fake_gpu_case(numbers_of_16_bits_are_added_in_f32) {
  on_world(3, [](int32_t rank, void* comm) {
    constexpr uint16_t kOf256 = 0x4380, kOf1 = 0x3F80, kOf258 = 0x4381;  // BF16 has 8 bits: 256 + 1 would stay 256
    uint16_t* const data = make_array<uint16_t>({rank == 0 ? kOf256 : kOf1});
    check_equal(n.all_reduce(data, data, 1, DDP_BF16, DDP_GPU_SUM, comm, nullptr), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check_equal(values_of(data, 1)[0], kOf258);
  });
}

fake_gpu_case(minimum_and_maximum_of_whole_numbers) {
  on_world(3, [](int32_t rank, void* comm) {
    int64_t* const data = make_array<int64_t>({rank, -rank});
    int64_t* const out = make_array<int64_t>({0, 0, 0, 0});
    check_equal(n.all_reduce(data, out, 2, DDP_I64, DDP_GPU_MIN, comm, nullptr), 0);
    check_equal(n.all_reduce(data, out + 2, 2, DDP_I64, DDP_GPU_MAX, comm, nullptr), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check(values_of(out, 4) == (std::vector<int64_t>{0, -2, 2, 0}));
  });
}

fake_gpu_case(scatter_gather_and_broadcast_work_in_place) {
  on_world(2, [](int32_t rank, void* comm) {
    const auto r = static_cast<float>(rank);
    float* const data = make_array<float>({1, 2 + r, 3, 4 + r});
    check_equal(n.reduce_scatter(data, data + 2 * rank, 2, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    assert_ok(api.stream_synchronize(nullptr));
    const std::vector<float> own = values_of(data + 2 * rank, 2);
    check(own == (rank == 0 ? std::vector<float>{2, 5} : std::vector<float>{6, 9}));
    check_equal(n.all_gather(data + 2 * rank, data, 2, DDP_F32, comm, nullptr), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check(values_of(data, 4) == (std::vector<float>{2, 5, 6, 9}));
    float* const word = make_array<float>({r});
    check_equal(n.broadcast(word, word, 1, DDP_F32, 1, comm, nullptr), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check(values_of(word, 1)[0] == 1);
  });
}

fake_gpu_case(grouped_operations_run_at_the_end_of_the_group) {
  on_world(2, [](int32_t, void* comm) {
    float* const data = make_array<float>({1, 2});
    check_equal(n.group_start(), 0);
    check_equal(n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    check_equal(n.all_reduce(data + 1, data + 1, 1, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    check_equal(pending(nullptr), 0);
    check_equal(n.group_end(), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check(values_of(data, 2) == (std::vector<float>{2, 4}));
  });
}

fake_gpu_case(operations_of_one_group_must_not_touch_the_same_bytes) {
  on_world(1, [](int32_t, void* comm) {
    float* const data = make_array<float>({1, 2});
    n.group_start();
    n.all_reduce(data, data, 2, DDP_F32, DDP_GPU_SUM, comm, nullptr);
    n.all_reduce(data, data, 2, DDP_F32, DDP_GPU_SUM, comm, nullptr);
    n.group_end();
    api.stream_synchronize(nullptr);
  });
  assert_violation("operation 1 of a group");
}

fake_gpu_case(two_ranks_on_one_device_are_refused) {
  const Id id = make_id();
  auto other = later([&] {
    void* comm = nullptr;
    check_equal(n.error_kind(n.comm_init(&comm, 2, &id, 1, "", 0)), DDP_NCCL_BAD_ARGUMENT);
  });
  void* comm = nullptr;
  check_equal(n.error_kind(n.comm_init(&comm, 2, &id, 0, "", 0)), DDP_NCCL_BAD_ARGUMENT);
  check(std::strstr(n.last_error(nullptr), "Duplicate GPU") != nullptr);
  other.get();
  check_equal(live().communicators, 0);
}

fake_gpu_case(different_counts_are_recognised_and_leave_rubbish) {
  on_world(2, [](int32_t rank, void* comm) {
    float* const data = make_array<float>({1, 2});
    check_equal(n.all_reduce(data, data, rank + 1, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check_equal(values_of(reinterpret_cast<uint8_t*>(data), 1)[0], kAborted);
  });
  assert_violation("disagree about collective 0");
}

fake_gpu_case(different_roots_types_and_operations_are_recognised) {
  on_world(2, [](int32_t rank, void* comm) {
    float* const data = make_array<float>({1, 2});
    n.broadcast(data, data, 1, DDP_F32, rank, comm, nullptr);
    n.all_reduce(data, data, 1, rank == 0 ? DDP_F32 : DDP_I32, DDP_GPU_SUM, comm, nullptr);
    if (rank == 0)
      n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, nullptr);
    else
      n.broadcast(data, data, 1, DDP_F32, 0, comm, nullptr);
    api.stream_synchronize(nullptr);
  });
  check_equal(violations().size(), 3);
  clear_violations();
}

fake_gpu_case(overlapping_buffers_that_are_not_in_place_are_recognised) {
  on_world(1, [](int32_t, void* comm) {
    float* const data = make_array<float>({1, 2, 3});
    n.all_reduce(data, data + 1, 2, DDP_F32, DDP_GPU_SUM, comm, nullptr);
    api.stream_synchronize(nullptr);
  });
  assert_violation("overlap and are not in place");
}

fake_gpu_case(a_missing_rank_hangs_the_others_until_they_abort) {
  const Id id = make_id();
  on_ranks(2, [&](int32_t rank) {
    void* comm = nullptr;
    check_equal(n.comm_init(&comm, 2, &id, rank, "", 0), 0);
    if (rank == 1) {
      check_equal(n.comm_abort(comm), 0);
      return;
    }
    float* const data = make_array<float>({1, 2});
    check_equal(n.all_reduce(data, data, 2, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    check_equal(pending(nullptr), 1);
    check_equal(n.comm_abort(comm), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check_equal(values_of(reinterpret_cast<uint8_t*>(data), 8)[7], kAborted);
  });
  check_equal(collectives(), 0);
  check_equal(live().communicators, 0);
}

fake_gpu_case(a_communicator_that_a_thread_makes_must_not_be_aborted) {
  const Id id = make_id();
  void* comm = nullptr;
  int32_t result = 0;
  auto helper = later([&] { result = n.comm_init(&comm, 2, &id, 0, "", 0); });
  while (__atomic_load_n(&comm, __ATOMIC_ACQUIRE) == nullptr) std::this_thread::yield();
  check_equal(n.comm_abort(comm), 0);
  assert_violation("while a thread is inside comm_init");
  helper.get();
  check_equal(n.error_kind(result), DDP_NCCL_FAILED);
  check_equal(live().communicators, 0);
  check_equal(n.error_kind(n.comm_abort(comm)), DDP_NCCL_BAD_ARGUMENT);
  assert_violation("which is gone");
}

fake_gpu_case(calls_may_return_before_they_are_over) {
  reset(Options{.nccl_looks = 4});
  const Id id = make_id();
  on_ranks(2, [&](int32_t rank) {
    void* comm = nullptr;
    check_equal(n.error_kind(n.comm_init(&comm, 2, &id, rank, "", 0)), DDP_NCCL_IN_PROGRESS);
    check_equal(over(comm), 0);
    float* const data = make_array<float>({1});
    check_equal(n.error_kind(n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, nullptr)), DDP_NCCL_IN_PROGRESS);
    check_equal(over(comm), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check_equal(n.error_kind(n.comm_finalize(comm)), DDP_NCCL_IN_PROGRESS);
    check_equal(over(comm), 0);
    check_equal(n.comm_destroy(comm), 0);
  });
}

fake_gpu_case(the_next_call_must_not_come_before_one_is_over) {
  reset(Options{.nccl_looks = 4});
  const Id id = make_id();
  void* comm = nullptr;
  check_equal(n.error_kind(n.comm_init(&comm, 1, &id, 0, "", 0)), DDP_NCCL_IN_PROGRESS);
  check_equal(over(comm), 0);
  float* const data = make_array<float>({1});
  for (int i = 0; i < 2; ++i) static_cast<void>(n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, nullptr));
  assert_violation("while its last call is in progress");
  check_equal(n.comm_abort(comm), 0);
}

fake_gpu_case(a_communicator_that_does_not_block_can_be_aborted_half_made) {
  reset(Options{.nccl_looks = 4});
  const Id id = make_id();
  void* comm = nullptr;
  int32_t result = 0;
  check_equal(n.error_kind(n.comm_init(&comm, 2, &id, 0, "", 0)), DDP_NCCL_IN_PROGRESS);
  check_equal(n.comm_async_error(comm, &result), 0);
  check_equal(n.error_kind(result), DDP_NCCL_IN_PROGRESS);
  check_equal(n.comm_abort(comm), 0);
  check_equal(live().communicators, 0);
}

fake_gpu_case(init_and_finalize_can_be_made_to_hang) {
  delay_nccl(NcclCall::kInit, 0, -1);
  const Id id = make_id();
  void* comm = nullptr;
  auto helper = later([&] { check(n.comm_init(&comm, 1, &id, 0, "", 0) != 0); });
  while (__atomic_load_n(&comm, __ATOMIC_ACQUIRE) == nullptr) std::this_thread::yield();
  check_equal(n.comm_abort(comm), 0);
  assert_violation("while a thread is inside comm_init");
  helper.get();
  delay_nccl(NcclCall::kInit, 0, 1);
  delay_nccl(NcclCall::kFinalize, -1, -1);
  const Id second = make_id();
  check_equal(n.comm_init(&comm, 1, &second, 0, "", 0), 0);
  auto finalizing = later([&] { check(n.comm_finalize(comm) != 0); });
  while (calls("nccl.comm_finalize") == 0) std::this_thread::yield();
  check_equal(n.comm_abort(comm), 0);
  finalizing.get();
}

fake_gpu_case(an_error_that_comes_later_is_reported) {
  on_world(2, [](int32_t rank, void* comm) {
    int32_t result = 7;
    check_equal(n.comm_async_error(comm, &result), 0);
    check_equal(result, 0);
    if (rank == 1) set_async_error(1, DDP_NCCL_REMOTE);
    if (rank != 1) return;
    check_equal(n.comm_async_error(comm, &result), 0);
    check_equal(n.error_kind(result), DDP_NCCL_REMOTE);
    float* const data = make_array<float>({1});
    check_equal(n.error_kind(n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, nullptr)), DDP_NCCL_REMOTE);
  });
}

fake_gpu_case(two_threads_in_one_communicator_are_recognised) {
  delay_nccl(NcclCall::kFinalize, 0, -1);
  const Id id = make_id();
  void* comm = nullptr;
  check_equal(n.comm_init(&comm, 1, &id, 0, "", 0), 0);
  auto other = later([&] { n.comm_finalize(comm); });
  while (calls("nccl.comm_finalize") == 0) std::this_thread::yield();
  while (violations().empty()) {  // the other is inside soon
    float* const data = make_array<float>({1});
    check_equal(n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
  }
  check_equal(n.comm_abort(comm), 0);  // allowed
  other.get();
  assert_violation("used by two threads at once");
}

fake_gpu_case(registered_memory_is_counted_and_must_not_be_freed) {
  on_world(1, [](int32_t, void* comm) {
    void *memory = nullptr, *handle = nullptr;
    check_equal(n.mem_alloc(&memory, 64), 0);
    check_equal(n.comm_register(comm, memory, 64, &handle), 0);
    check_equal(live().registrations, 1);
    check_equal(n.mem_free(memory), 0);
    assert_violation("registered with NCCL");
    check_equal(n.comm_deregister(comm, handle), 0);
    check_equal(live().registrations, 0);
  });
}

fake_gpu_case(hosts_meet_in_a_collective_on_registered_memory) {
  std::atomic<bool> late{false}, returned{false};
  on_world(2, [&](int32_t rank, void* comm) {
    void *memory = nullptr, *handle = nullptr;
    check_equal(n.mem_alloc(&memory, 64), 0);
    check_equal(n.comm_register(comm, memory, 64, &handle), 0);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      assert_false(returned.load());
      late = true;
    }
    check_equal(n.all_reduce(memory, memory, 16, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    returned = true;
    assert_true(late.load());
    check_equal(api.stream_synchronize(nullptr), 0);
    check_equal(n.comm_deregister(comm, handle), 0);
    check_equal(n.mem_free(memory), 0);
  });
}

fake_gpu_case(memory_in_use_must_not_be_freed) {
  on_world(1, [](int32_t, void* comm) {
    void* memory = nullptr;
    check_equal(n.mem_alloc(&memory, 64), 0);
    check_equal(n.all_reduce(memory, memory, 16, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    check_equal(n.mem_free(memory), 0);
    assert_violation("memory may still be in use");
  });
}

fake_gpu_case(opening_it_can_fail) {
  const ddp_nccl_table* table = nullptr;
  char error[64] = "";
  reset(Options{.nccl_version = 21403});
  check_equal(api.open_nccl(nullptr, &table, error, sizeof error), 0);
  check(table == &nccl());
  check_equal(table->library_version, 21403);
  set_open_nccl_error("no libnccl.so.2 anywhere");
  check_equal(api.open_nccl(nullptr, &table, error, sizeof error), 1);
  expect_equal(std::string(error), "no libnccl.so.2 anywhere", "text");
  check_equal(api.find_nccl(&table, error, sizeof error), 1);
  set_open_nccl_error("");
  table = nullptr;
  check_equal(api.find_nccl(&table, error, sizeof error), 0);
  check(table == &nccl());
}

/// From three ranks on: (b + c) + a and not (a + b) + c.
fake_gpu_case(sums_are_not_in_the_order_of_the_cpu) {
  on_world(3, [](int32_t rank, void* comm) {
    const float numbers[] = {1.0F, 0x1p24F, -0x1p24F};
    float* const data = make_array<float>({numbers[rank]});
    check_equal(n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, nullptr), 0);
    assert_ok(api.stream_synchronize(nullptr));
    check_equal(values_of(data, 1)[0], 1.0F);
  });
}
