// SPDX-License-Identifier: Apache-2.0
// Streams and events of the fake GPU: work happens later, and in the order that events give.

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

bool is_done(void* event) {
  int32_t done = 7;
  assert_ok(api.event_query(event, &done));
  return done != 0;
}

fake_gpu_case(work_waits_while_its_stream_is_held) {
  void *const stream = make_stream(), *const event = make_event();
  uint8_t* const array = make_array<uint8_t>({1, 1});
  pause(stream);
  assert_ok(api.fill(array, 5, 2, stream));
  assert_ok(api.event_record(event, stream));
  check_equal(pending(stream), 2);
  check(!is_done(event));
  check_equal(values_of(array, 2)[1], 1);
  resume(stream);
  assert_ok(api.event_synchronize(event));
  check_equal(values_of(array, 2)[1], 5);
  check(wait_idle());
  check_equal(pending(stream), 0);
}

fake_gpu_case(the_default_stream_can_be_held_too) {
  uint8_t* const array = make_array<uint8_t>({1, 1});
  pause(nullptr);
  assert_ok(api.fill(array, 5, 2, nullptr));
  check_equal(pending(nullptr), 1);
  check_equal(pending_on_device(0), 1);
  resume(nullptr);
  assert_ok(api.synchronize());
  check_equal(values_of(array, 2)[1], 5);
}

fake_gpu_case(a_held_device_holds_streams_that_are_made_later) {
  pause_device(0);
  void* const stream = make_stream();
  uint8_t* const array = make_array<uint8_t>({1});
  assert_ok(api.fill(array, 5, 1, stream));
  check(!wait_idle(20));
  resume_device(0);
  check(wait_idle());
  check_equal(values_of(array, 1)[0], 5);
}

fake_gpu_case(a_stream_waits_for_an_event_of_another) {
  void *const first = make_stream(), *const second = make_stream(), *const event = make_event();
  uint8_t* const array = make_array<uint8_t>({1});
  pause(first);
  assert_ok(api.fill(array, 2, 1, first));
  assert_ok(api.event_record(event, first));
  assert_ok(api.stream_wait(second, event));
  assert_ok(api.fill(array, 3, 1, second));
  check_equal(pending(second), 2);
  resume(first);
  check(wait_idle());
  check_equal(values_of(array, 1)[0], 3);
}

fake_gpu_case(a_wait_is_for_the_recording_that_was_there) {
  void *const first = make_stream(), *const second = make_stream(), *const event = make_event();
  assert_ok(api.event_record(event, first));
  assert_ok(api.stream_wait(second, event));
  check(wait_idle());
  pause(first);
  assert_ok(api.event_record(event, first));  // again; the wait above does not care
  check_equal(pending(second), 0);
  check(!is_done(event));
  resume(first);
}

fake_gpu_case(an_event_that_was_never_recorded_is_done) {
  void *const stream = make_stream(), *const event = make_event();
  check(is_done(event));
  assert_ok(api.event_synchronize(event));
  assert_ok(api.stream_wait(stream, event));
  assert_ok(api.stream_synchronize(stream));
}

fake_gpu_case(synchronize_waits_for_all_streams_of_its_device) {
  void *const first = make_stream(), *const second = make_stream();
  assert_ok(api.set_device(1));
  void* const foreign = make_stream();
  void* const foreign_event = make_event();
  assert_ok(api.set_device(0));
  uint8_t* const array = make_array<uint8_t>({1, 1});
  pause(first);
  pause(foreign);
  assert_ok(api.event_record(foreign_event, foreign));
  assert_ok(api.fill(array, 2, 1, first));
  assert_ok(api.fill(array + 1, 2, 1, second));
  std::atomic<bool> over{false};
  auto waiting = later([&] {
    api.synchronize();
    over = true;
  });
  while (pending(second) > 0) std::this_thread::yield();
  check(!over);
  resume(first);
  waiting.get();
  check_equal(values_of(array, 2)[0], 2);
  resume(foreign);
}

fake_gpu_case(events_tell_the_time_between_them) {
  void* const stream = make_stream();
  void *from = nullptr, *to = nullptr;
  assert_ok(api.event_create(&from, 1));
  assert_ok(api.event_create(&to, 1));
  const auto before = std::chrono::steady_clock::now();
  assert_ok(api.event_record(from, stream));
  assert_ok(api.event_synchronize(from));
  pause(stream);
  assert_ok(api.event_record(to, stream));
  double ms = -1;
  check_equal(api.error_kind(api.event_elapsed(from, to, &ms)), DDP_GPU_OTHER);  // not done yet
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  resume(stream);
  assert_ok(api.event_synchronize(to));
  assert_ok(api.event_elapsed(from, to, &ms));
  check(ms >= 3);
  check((ms <= std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count()));
  check_equal(api.error_kind(api.event_elapsed(from, make_event(), &ms)), DDP_GPU_BAD_ARGUMENT);
}

fake_gpu_case(a_destroyed_stream_finishes_its_work) {
  void* const stream = make_stream();
  uint8_t* const array = make_array<uint8_t>({1});
  pause(stream);
  assert_ok(api.fill(array, 5, 1, stream));
  check_equal(streams().size(), 1);
  const int64_t number = stream_number(stream);
  check_equal(number, streams()[0].number);
  resume(stream);
  assert_ok(api.stream_destroy(stream));
  check(wait_idle());
  check_equal(values_of(array, 1)[0], 5);
  check_equal(live().streams, 0);
}

fake_gpu_case(destroyed_handles_are_recognised) {
  void *const stream = make_stream(), *const event = make_event();
  assert_ok(api.stream_destroy(stream));
  assert_ok(api.event_destroy(event));
  check_equal(api.error_kind(api.stream_synchronize(stream)), DDP_GPU_BAD_ARGUMENT);
  assert_violation("use of stream 1, which was destroyed");
  check_equal(api.error_kind(api.event_record(event, nullptr)), DDP_GPU_BAD_ARGUMENT);
  assert_violation("use of event 1, which was destroyed");
  int32_t garbage = 0;
  check_equal(api.error_kind(api.stream_synchronize(&garbage)), DDP_GPU_BAD_ARGUMENT);
}

fake_gpu_case(a_launch_needs_the_device_of_its_stream) {
  void* const stream = make_stream();
  void* const event = make_event();
  uint8_t* const array = make_array<uint8_t>({1});
  assert_ok(api.set_device(1));
  check_equal(api.error_kind(api.fill(array, 0, 1, stream)), DDP_GPU_BAD_ARGUMENT);
  assert_violation("while device 1 is current");
  check_equal(api.error_kind(api.event_record(event, nullptr)), DDP_GPU_BAD_ARGUMENT);
  assert_violation("is recorded on stream 0 of device 1");
  assert_ok(api.stream_wait(nullptr, event));  // across devices: allowed
}

fake_gpu_case(random_delays_change_no_result) {
  reset(Options{.seed = 42, .max_delay_us = 300});
  void *const first = make_stream(), *const second = make_stream(), *const event = make_event();
  uint8_t* const array = make_array<uint8_t>({0});
  for (int i = 1; i <= 20; ++i) {
    assert_ok(api.fill(array, i, 1, i % 2 == 0 ? first : second));
    assert_ok(api.event_record(event, i % 2 == 0 ? first : second));
    assert_ok(api.stream_wait(i % 2 == 0 ? second : first, event));
  }
  check(wait_idle());
  check_equal(values_of(array, 1)[0], 20);
}

fake_gpu_case(reset_ends_work_that_is_held) {
  void* const stream = make_stream();
  pause(stream);
  uint8_t* const array = make_array<uint8_t>({0});
  assert_ok(api.fill(array, 1, 1, stream));
  std::atomic<bool> entered{false};
  auto waiting = later([&] {
    entered = true;
    api.stream_synchronize(stream);  // an error or success: it returns
  });
  while (!entered || calls("stream_synchronize") == 0) std::this_thread::yield();
  reset();
  waiting.get();
  check_equal(live().total(), 0);
}
