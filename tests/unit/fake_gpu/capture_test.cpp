// SPDX-License-Identifier: Apache-2.0
// Capture: work is recorded, not run; it can be launched again and again; what must not be called then is refused and spoils
// it.

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

bool is_capturing(void *stream) {
  int32_t capturing = 7;
  assert_ok(api.stream_is_capturing(stream, &capturing));
  return capturing != 0;
}

uint64_t capture_of(void *stream) {
  uint64_t capture = 7;
  assert_ok(api.stream_capture(stream, &capture));
  return capture;
}

void expect_refused(int32_t code) { check_equal(api.error_kind(code), DDP_GPU_CAPTURE); }

fake_gpu_case(captured_work_runs_when_the_graph_is_launched) {
  void *const stream = make_stream();
  uint8_t *const array = make_array<uint8_t>({1, 2});
  check(begin_capture(stream));
  check(is_capturing(stream));
  const uint64_t first = capture_of(stream);
  check(first != 0 && !begin_capture(stream));
  assert_ok(api.fill(array, 7, 1, stream));
  assert_ok(api.copy(array + 1, array, 1, stream));
  check_equal(pending(stream), 0);
  const GraphPtr graph = end_capture(stream);
  check(graph != nullptr);
  check(!is_capturing(stream) && capture_of(stream) == 0);
  check(graph_operations(graph) == (std::vector<std::string>{"fill", "copy"}));
  check_equal(values_of(array, 2)[1], 2);
  for (int i = 0; i < 3; ++i) {
    const uint8_t changed[2] = {9, 9};
    check(poke(array, changed, 2));
    launch_graph(graph, stream);
    assert_ok(api.stream_synchronize(stream));
    check_equal(values_of(array, 2)[1], 7);
  }
}

fake_gpu_case(a_stream_that_waits_joins_and_must_be_joined_back) {
  void *const stream = make_stream(), *const side = make_stream(), *const event = make_event();
  uint8_t *const array = make_array<uint8_t>({1});
  check(begin_capture(stream));
  assert_ok(api.fill(array, 2, 1, stream));
  assert_ok(api.event_record(event, stream));
  assert_ok(api.stream_wait(side, event));
  check(is_capturing(side));
  assert_ok(api.fill(array, 3, 1, side));
  assert_ok(api.event_record(event, side));
  assert_ok(api.stream_wait(stream, event));
  const GraphPtr graph = end_capture(stream);
  check(graph != nullptr);
  check(!is_capturing(side));
  launch_graph(graph, stream);
  assert_ok(api.stream_synchronize(stream));
  check_equal(values_of(array, 1)[0], 3);

  check(begin_capture(stream));
  assert_ok(api.event_record(event, stream));
  assert_ok(api.stream_wait(side, event));
  assert_ok(api.fill(array, 3, 1, side));
  std::string why;
  check(end_capture(stream, &why) == nullptr);
  expect_contains(why, "work on stream 2");
}

fake_gpu_case(a_race_inside_a_capture_is_found) {
  void *const stream = make_stream(), *const side = make_stream(), *const event = make_event();
  uint8_t *const array = make_array<uint8_t>({1});
  check(begin_capture(stream));
  assert_ok(api.event_record(event, stream));
  assert_ok(api.stream_wait(side, event));
  assert_ok(api.fill(array, 2, 1, stream));
  assert_ok(api.fill(array, 3, 1, side));
  assert_violation("captured fill #2");
  (void)end_capture(stream);
}

fake_gpu_case(a_launched_graph_races_with_other_streams) {
  void *const stream = make_stream(), *const side = make_stream();
  uint8_t *const array = make_array<uint8_t>({1});
  check(begin_capture(stream));
  assert_ok(api.fill(array, 2, 1, stream));
  const GraphPtr graph = end_capture(stream);
  pause(side);  // nothing really races
  assert_ok(api.fill(array, 2, 1, side));
  launch_graph(graph, stream);
  assert_violation("race: graph");
}

fake_gpu_case(what_waits_or_asks_is_refused_and_spoils_the_capture) {
  void *const stream = make_stream(), *const event = make_event();
  void *memory = make_array<uint8_t>({1});
  const auto spoils = [&](auto &&call) {
    check(begin_capture(stream));
    assert_ok(api.event_record(event, stream));
    expect_refused(call());
    std::string why;
    check(end_capture(stream, &why) == nullptr);
    check(!why.empty());
  };
  int32_t done = 0;
  uint8_t host = 0;
  spoils([&] { return api.stream_synchronize(stream); });
  spoils([&] { return api.synchronize(); });
  spoils([&] { return api.event_query(event, &done); });
  spoils([&] { return api.event_synchronize(event); });
  spoils([&] { return api.alloc(&memory, 10); });
  spoils([&] { return api.free(memory); });
  spoils([&] { return api.host_alloc(&memory, nullptr, 10); });
  spoils([&] { return api.copy(&host, memory, 1, stream); });
  expect_refused(api.event_query(event, &done));  // still the captured one
  assert_ok(api.event_record(event, stream));
  assert_ok(api.event_synchronize(event));
}

fake_gpu_case(waiting_for_work_outside_of_the_capture_is_refused) {
  void *const stream = make_stream(), *const side = make_stream(), *const event = make_event();
  assert_ok(api.event_record(event, side));
  check(begin_capture(stream));
  expect_refused(api.stream_wait(stream, event));
  check(end_capture(stream) == nullptr);
}

fake_gpu_case(an_event_of_a_capture_that_is_over_cannot_be_waited_for) {
  void *const stream = make_stream(), *const side = make_stream(), *const event = make_event();
  check(begin_capture(stream));
  assert_ok(api.event_record(event, stream));
  check(end_capture(stream) != nullptr);
  expect_refused(api.stream_wait(side, event));
}

fake_gpu_case(other_threads_are_refused_too_unless_they_are_relaxed) {
  void *const stream = make_stream(), *const event = make_event();
  assert_ok(api.event_record(event, nullptr));
  check(wait_idle());
  check(begin_capture(stream));
  later([&] {
    assert_ok(api.relax_capture());
    int32_t done = 0;
    assert_ok(api.event_query(event, &done));
  }).get();
  check(end_capture(stream) != nullptr);

  const auto ask = [&] {
    int32_t done = 0;
    return api.event_query(event, &done);
  };
  check(begin_capture(stream, CaptureMode::kThreadLocal));
  later([&] { assert_ok(ask()); }).get();
  check(end_capture(stream) != nullptr);
  check(begin_capture(stream));
  later([&] { expect_refused(ask()); }).get();
  std::string why;
  check(end_capture(stream, &why) == nullptr);
  expect_contains(why, "event_query");
}

fake_gpu_case(captured_collectives_run_at_every_launch) {
  char id[DDP_NCCL_ID_BYTES];
  check_equal(nccl().get_unique_id(id), 0);
  on_ranks(2, [&](int32_t rank) {
    void *comm = nullptr;
    check_equal(nccl().comm_init(&comm, 2, id, rank, "", 0), 0);
    void *const stream = make_stream();
    float *const data = make_array<float>({static_cast<float>(rank + 1)});
    check(begin_capture(stream, CaptureMode::kThreadLocal));
    check_equal(nccl().all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, stream), 0);
    const GraphPtr graph = end_capture(stream);
    check(graph != nullptr);
    launch_graph(graph, stream);
    launch_graph(graph, stream);  // both before the first has run
    assert_ok(api.stream_synchronize(stream));
    check(values_of(data, 1)[0] == 6);  // 1 + 2 = 3 on both, 3 + 3
    check_equal(nccl().comm_destroy(comm), 0);
  });
  check_equal(collectives(), 2);
}
