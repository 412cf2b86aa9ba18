// SPDX-License-Identifier: Apache-2.0
// Injected failures, what a missing driver or device looks like, the log of calls and the counters.
#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

fake_gpu_case(the_call_that_was_named_fails_and_no_other) {
  inject({.function = "event_create", .nth = 2, .times = 2, .kind = DDP_GPU_OUT_OF_MEMORY});
  void* event = nullptr;
  assert_ok(api.event_create(&event, 0));
  void* none = nullptr;
  check_equal(api.error_kind(api.event_create(&none, 0)), DDP_GPU_OUT_OF_MEMORY);
  check_equal(api.error_kind(api.event_create(&none, 0)), DDP_GPU_OUT_OF_MEMORY);
  check(none == nullptr);
  assert_ok(api.event_create(&event, 0));
  check_equal(live().events, 2);
}

fake_gpu_case(every_kind_can_be_asked_for) {
  for (int32_t kind = DDP_GPU_OUT_OF_MEMORY; kind <= DDP_GPU_NO_CODE; ++kind) {
    inject({.function = "load_kernels", .kind = kind});
    const int32_t code = api.load_kernels();
    check_equal(api.error_kind(code), kind);
    check(api.error_name(code)[0] != '\0' && api.error_text(code)[0] != '\0');
    clear_faults();
  }
  for (int32_t kind = DDP_NCCL_IN_PROGRESS; kind <= DDP_NCCL_FAILED; ++kind) {
    inject({.function = "nccl.group_start", .kind = kind});
    check_equal(nccl().error_kind(nccl().group_start()), kind);
    clear_faults();
  }
}

fake_gpu_case(a_fault_can_be_for_one_device) {
  inject({.function = "stream_create", .times = 100, .device = 1});
  void* stream = nullptr;
  assert_ok(api.stream_create(&stream, 0));
  assert_ok(api.set_device(1));
  check(api.stream_create(&stream, 0) != 0);
}

fake_gpu_case(a_lost_device_fails_for_ever_but_gives_back) {
  void *const stream = make_stream(), *const event = make_event();
  float* const array = make_array<float>({1});
  lose_device(0);
  int32_t done = 0;
  check_equal(api.error_kind(api.event_query(event, &done)), DDP_GPU_LOST);
  check_equal(api.error_kind(api.stream_synchronize(stream)), DDP_GPU_LOST);
  check_equal(api.error_kind(api.free(array)), DDP_GPU_LOST);
  check_equal(api.error_kind(api.stream_destroy(stream)), DDP_GPU_LOST);
  check_equal(api.error_kind(api.event_destroy(event)), DDP_GPU_LOST);
  check_equal(live().total(), 0);
  later([] {
    assert_ok(api.set_device(0) == 0 ? 1 : 0);  // also from another thread
  }).get();
}

fake_gpu_case(without_a_driver_nothing_works) {
  set_driver_version(0);
  int32_t version = 7, count = 7;
  assert_ok(api.driver_version(&version));
  check_equal(version, 0);
  check_equal(api.error_kind(api.device_count(&count)), DDP_GPU_NO_DRIVER);
  check_equal(count, 0);
  void* memory = nullptr;
  check_equal(api.error_kind(api.alloc(&memory, 4)), DDP_GPU_NO_DRIVER);
}

fake_gpu_case(without_a_device_nothing_works) {
  set_device_count(0);
  int32_t count = 7;
  check_equal(api.error_kind(api.device_count(&count)), DDP_GPU_NO_DEVICE);
  check_equal(count, 0);
  check_equal(api.error_kind(api.set_device(0)), DDP_GPU_NO_DEVICE);
  void* memory = nullptr;
  check_equal(api.error_kind(api.alloc(&memory, 4)), DDP_GPU_NO_DEVICE);
  set_device_count(2);
  assert_ok(api.set_device(1));
  check_equal(api.error_kind(api.set_device(2)), DDP_GPU_BAD_ARGUMENT);
}

fake_gpu_case(calls_are_logged_and_counted) {
  void *const stream = make_stream(), *const event = make_event();
  uint8_t* const array = make_array<uint8_t>({1, 2});
  clear_log();
  assert_ok(api.fill(array, 0, 2, stream));
  assert_ok(api.event_record(event, stream));
  assert_ok(api.stream_wait(nullptr, event));
  void* more = nullptr;
  assert_ok(api.alloc(&more, 10));
  assert_ok(api.event_synchronize(event));
  check(log() == (std::vector<std::string>{"[0] fill stream=1 bytes=2", "[0] event_record stream=1 event=1",
                                           "[0] stream_wait stream=0 event=1", "[0] alloc bytes=10",
                                           "[0] event_synchronize event=1"}));
  check_equal(calls("fill"), 1);
  check_equal(calls("fill", 0), 1);
  check_equal(calls("fill", 1), 0);
  check_equal(calls("move"), 0);
  check_equal(host_waits(), 1);
  check_equal(allocations(), 1);
  clear_log();
  check_equal(calls("fill") + host_waits() + allocations(), 0);
  check(log().empty());
}

fake_gpu_case(every_function_of_the_tables_is_there) {
  const auto complete = [](const auto& table, size_t first) {
    const auto* const words = reinterpret_cast<const void* const*>(&table);
    for (size_t i = first; i < sizeof table / sizeof(void*); ++i) check(words[i] != nullptr);
    check_equal(table.struct_size, sizeof table);
  };
  complete(api, 2);
  complete(nccl(), 2);
}
