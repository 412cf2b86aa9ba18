// SPDX-License-Identifier: Apache-2.0
// Memory of the fake GPU: addresses that fault, who may touch what, what is left.

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

/// The system reads the byte, in the place of the host, and returns an error.
bool faults(const void* address) {
  int pipes[2];
  check(::pipe(pipes) == 0);
  const bool failed = ::write(pipes[1], address, 1) != 1;
  ::close(pipes[0]);
  ::close(pipes[1]);
  return failed;
}

fake_gpu_case(a_host_that_reads_device_memory_faults) {
  void *device = nullptr, *nccl_memory = nullptr, *host = nullptr, *pinned = nullptr;
  assert_ok(api.alloc(&device, 64));
  assert_ok(nccl().mem_alloc(&nccl_memory, 64));
  assert_ok(api.host_alloc(&host, &pinned, 64));
  for (const void* const memory : {device, nccl_memory, pinned, make_stream()}) check(faults(memory));
  check(!faults(host));
}

fake_gpu_case(blocks_are_aligned_and_not_zeroed_but_pinned_ones_are) {
  void *device = nullptr, *host = nullptr, *pinned = nullptr;
  assert_ok(api.alloc(&device, 100));
  check_equal(reinterpret_cast<uintptr_t>(device) % 256, 0);
  check_equal(values_of(static_cast<uint8_t*>(device), 100)[99], kFresh);
  assert_ok(api.host_alloc(&host, &pinned, 100));
  check(host != pinned);
  check_equal(static_cast<char*>(host)[99], 0);
  static_cast<char*>(host)[99] = 7;
  check_equal(values_of(static_cast<uint8_t*>(pinned), 100)[99], 7);
}

fake_gpu_case(a_pointer_tells_its_device) {
  assert_ok(api.set_device(3));
  void *device = nullptr, *host = nullptr, *pinned = nullptr;
  assert_ok(api.alloc(&device, 100));
  assert_ok(api.host_alloc(&host, &pinned, 100));
  const auto expect_on = [](const void* memory, int32_t wanted, int32_t host_reads) {
    int32_t found = 7, reads = 7;
    assert_ok(api.pointer_device(memory, &found, &reads));
    check_equal(found, wanted);
    check_equal(reads, host_reads);
  };
  int here = 0;
  expect_on(static_cast<char*>(device) + 99, 3, 0);
  expect_on(host, -1, 1);
  expect_on(&here, -1, 1);
  assert_ok(api.free(device));
  expect_on(device, -1, 1);
}

fake_gpu_case(what_lives_is_counted) {
  check_equal(live().total(), 0);
  void *device = nullptr, *host = nullptr;
  assert_ok(api.alloc(&device, 100));
  assert_ok(api.host_alloc(&host, nullptr, 100));
  void *const stream = make_stream(), *const event = make_event();
  check_equal(live().total(), 4);
  check_equal(live().bytes, 100);
  check_equal(live(0).total(), 4);
  check_equal(live(1).total(), 0);
  assert_ok(api.free(device));
  assert_ok(api.host_free(host));
  assert_ok(api.stream_destroy(stream));
  assert_ok(api.event_destroy(event));
  check_equal(live().total(), 0);
}

fake_gpu_case(a_device_can_be_full) {
  reset(Options{.devices = 1, .device_bytes = 1 << 20});
  void *first = nullptr, *second = nullptr;
  assert_ok(api.alloc(&first, 600 << 10));
  check_equal(api.error_kind(api.alloc(&second, 600 << 10)), DDP_GPU_OUT_OF_MEMORY);
  for (int i = 0; i < 10; ++i) {  // the part is used round and round
    assert_ok(api.free(first));
    assert_ok(api.alloc(&first, 600 << 10));
  }
  assert_ok(api.alloc(&second, 300 << 10));
  assert_ok(api.free(first));
  assert_ok(api.free(second));
}

fake_gpu_case(freed_memory_is_recognised) {
  float* const array = make_array<float>({1, 2, 3});
  assert_ok(api.free(array));
  assert_ok(api.fill(array, 0, 4, nullptr));
  assert_violation("was freed");
  check_equal(api.error_kind(api.free(array)), DDP_GPU_BAD_ARGUMENT);
  assert_violation("no live block begins");
}

fake_gpu_case(an_operation_that_leaves_its_block_is_recognised) {
  float* const array = make_array<float>({1, 2, 3});
  assert_ok(api.fill(array + 1, 0, 12, nullptr));
  assert_violation("leaves its block of 12 bytes");
  assert_ok(api.fill(array, 0, 12, nullptr));
  uint8_t *const whole = make_array(std::vector<uint8_t>(256)), *const next = make_array<uint8_t>({1});
  check(next > whole + 256);
  assert_ok(api.fill(whole + 256, 0, 1, nullptr));
  assert_violation("is not allocated");
}

fake_gpu_case(a_kernel_with_host_memory_is_recognised) {
  float host = 1;
  void *pinned_host = nullptr, *pinned = nullptr;
  assert_ok(api.host_alloc(&pinned_host, &pinned, 64));
  assert_ok(api.fill(&host, 0, 4, nullptr));
  assert_violation("no device address");
  assert_ok(api.fill(pinned_host, 0, 4, nullptr));
  assert_violation("no device address");
  assert_ok(api.fill(pinned, 1, 4, nullptr));
  assert_ok(api.stream_synchronize(nullptr));
  check_equal(static_cast<char*>(pinned_host)[0], 1);
}

fake_gpu_case(memory_is_freed_with_its_device_current) {
  assert_ok(api.set_device(1));
  void* memory = nullptr;
  assert_ok(api.alloc(&memory, 10));
  later([&] { assert_ok(api.free(memory)); }).get();  // a thread that has chosen no device
  assert_violation("free is called for device 1 while device 0 is current");
}

fake_gpu_case(free_waits_for_its_device_alone) {
  void* const stream = make_stream();
  uint8_t* const array = make_array<uint8_t>({1});
  assert_ok(api.set_device(1));
  void* foreign = nullptr;
  assert_ok(api.alloc(&foreign, 10));
  assert_ok(api.set_device(0));
  pause(stream);
  assert_ok(api.fill(array, 5, 1, stream));
  assert_ok(api.set_device(1));
  assert_ok(api.free(foreign));
  assert_ok(api.set_device(0));
  std::atomic<bool> over{false};
  auto freeing = later([&] {
    assert_ok(api.free(array));
    over = true;
  });
  while (calls("free") < 2) std::this_thread::yield();
  check(!over);
  check_equal(live().allocations, 1);
  resume(stream);
  freeing.get();
  check_equal(live().allocations, 0);
}

fake_gpu_case(memory_of_another_device_is_recognised) {
  float* const array = make_array<float>({1, 2, 3});
  assert_ok(api.set_device(1));
  assert_ok(api.fill(array, 0, 4, nullptr));
  assert_violation("is memory of device 0");
}

fake_gpu_case(memory_goes_back_the_way_it_came) {
  void* memory = nullptr;
  assert_ok(nccl().mem_alloc(&memory, 64));
  check(api.free(memory) != 0);
  assert_violation("another function allocated");
  assert_ok(nccl().mem_free(memory));
}

fake_gpu_case(copies_go_between_all_kinds_of_memory) {
  float* const array = make_array<float>({1, 2, 3});
  float host[3] = {4, 5, 6}, back[3] = {};
  assert_ok(api.copy(array, host, sizeof host, nullptr));
  host[0] = 100;  // pageable memory is read before copy returns
  assert_ok(api.copy(back, array, sizeof back, nullptr));
  check_equal(back[0], 4);
  check_equal(back[2], 6);
  void* pinned = nullptr;
  assert_ok(api.host_alloc(&pinned, nullptr, sizeof back));
  assert_ok(api.copy(pinned, array, sizeof back, nullptr));
  assert_ok(api.stream_synchronize(nullptr));
  check(std::memcmp(pinned, back, sizeof back) == 0);
  check_equal(host_waits(), 3);
}
