// SPDX-License-Identifier: Apache-2.0
// The worst that the fake assumes: late work, slow calls, a rank that ends inside NCCL, forks.

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

int64_t ms_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
}

void begin_late(int64_t late_ms) {
  Options options;
  options.late_ms = late_ms;
  reset(options);
}

fake_gpu_case(late_work_is_done_when_somebody_waits_for_it) {
  begin_late(60'000);
  int* const memory = make_array<int>({1});
  void* const stream = make_stream();
  assert_ok(api.fill(memory, 0, 4, stream));
  check(!wait_idle(50));
  check_equal(values_of(memory, 1)[0], 1);
  assert_ok(api.stream_synchronize(stream));
  check_equal(values_of(memory, 1)[0], 0);
}

fake_gpu_case(late_work_is_done_by_itself_too) {
  begin_late(20);
  int* const memory = make_array<int>({1});
  assert_ok(api.fill(memory, 0, 4, make_stream()));
  check(wait_idle());
  check_equal(values_of(memory, 1)[0], 0);
}

fake_gpu_case(streams_that_nothing_orders_overtake_each_other) {
  begin_late(3);
  int first_won = 0, second_won = 0;
  void *const first = make_stream(), *const second = make_stream();
  int* const memory = make_array<int>({0});
  for (int round = 0; round < 200 && (first_won == 0 || second_won == 0); ++round) {
    assert_ok(api.fill(memory, 1, 4, first));
    assert_ok(api.fill(memory, 2, 4, second));
    check(wait_idle());
    ++(values_of(memory, 1)[0] == 0x01010101 ? first_won : second_won);
  }
  check(first_won > 0 && second_won > 0);
  check(!violations().empty());
  clear_violations();
}

fake_gpu_case(a_late_copy_from_pageable_memory_reads_what_is_there_then) {
  begin_late(60'000);
  int* const memory = make_array<int>({0});
  int source = 1, target = 0;
  void* const stream = make_stream();
  assert_ok(api.copy(memory, &source, 4, stream));
  assert_ok(api.copy(&target, memory, 4, stream));
  source = 2;
  check_equal(target, 0);
  assert_ok(api.stream_synchronize(stream));
  check_equal(target, 2);
}

fake_gpu_case(a_query_sees_the_end_two_queries_late_unless_the_host_knows_it) {
  begin_late(1);
  int* const memory = make_array<int>({0});
  void *const stream = make_stream(), *const event = make_event();
  assert_ok(api.fill(memory, 1, 4, stream));
  assert_ok(api.event_record(event, stream));
  check(wait_idle());
  for (const int32_t wanted : {0, 0, 1, 1}) {
    int32_t done = -1;
    assert_ok(api.event_query(event, &done));
    check_equal(done, wanted);
  }
  assert_ok(api.fill(memory, 1, 4, stream));
  assert_ok(api.event_record(event, stream));
  assert_ok(api.stream_synchronize(stream));
  int32_t done = 0;
  assert_ok(api.event_query(event, &done));
  check_equal(done, 1);
}

fake_gpu_case(what_may_be_slow_is) {
  Options options;
  options.slow_init_ms = 60;
  reset(options);
  void* memory = nullptr;
  check(ms_of([&] { assert_ok(api.load_kernels()); }) >= 10);
  check(ms_of([&] { assert_ok(nccl().mem_alloc(&memory, 8)); }) >= 10);
  check(ms_of([&] { assert_ok(api.fill(memory, 1, 8, nullptr)); }) < 1000);
}

fake_gpu_case(the_environment_chooses) {
  check(::setenv(kModes, "late=60000,slow_init=12", 1) == 0);
  reset();
  check(::unsetenv(kModes) == 0);
  check(ms_of([] { assert_ok(api.load_kernels()); }) >= 2);
  int* const memory = make_array<int>({1});
  assert_ok(api.fill(memory, 0, 4, make_stream()));
  check(!wait_idle(20));
}

fake_gpu_case(a_rank_that_ends_is_held_and_its_streams_stand_still) {
  std::atomic<bool> told{false};
  assert_ok(api.set_device(1));
  int* const memory = make_array<int>({1});
  void* const stream = make_stream();
  let_die({1, 2, [&] { told = true; }});
  void* first = nullptr;
  assert_ok(nccl().mem_alloc(&first, 8));
  check(!is_dead());
  std::future<void> held = later([] {
    assert_ok(api.set_device(1));
    void* never = nullptr;
    check(nccl().mem_alloc(&never, 8) != 0);
  });
  while (!told) std::this_thread::yield();
  check(is_dead());
  assert_ok(api.fill(memory, 0, 4, stream));
  check(!wait_idle(20));
  check(held.wait_for(std::chrono::milliseconds(0)) == std::future_status::timeout);
  assert_ok(api.set_device(0));
  void* other = nullptr;
  assert_ok(nccl().mem_alloc(&other, 8));  // another rank continues
  end_death();
  held.get();
  check(wait_idle());
}

/// What becomes of a child that does that: its signal, 0 for none.
int signal_of(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's report is not wanted
    body();
    ::_exit(0);
  }
  int status = 0;
  check(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

fake_gpu_case(a_fork_that_calls_is_seen_in_its_parent) {
  void *host = nullptr, *pinned = nullptr;
  assert_ok(api.host_alloc(&host, &pinned, 64));
  check_equal(signal_of([] { (void)api.synchronize(); }), 0);
  assert_violation("synchronize is called in a fork");
  check_equal(signal_of([] { (void)nccl().comm_abort(nullptr); }), 0);
  assert_violation("nccl.comm_abort is called in a fork");
  check_equal(signal_of([&] { *static_cast<volatile char*>(host) = 1; }), SIGSEGV);
  check_equal(signal_of([] {}), 0);
}
