// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/device.hpp"
#include "support/check.hpp"
#include "support/tiny_gpu.hpp"

ddp_case(each_kind_of_failure_has_its_status) {
  const ddp_gpu_table table = tiny_gpu_table();
  tiny_gpu = TinyGpu{};
  const gpu::Device device(table, 1, "rank 3 (host a, pid 7)");
  const struct {
    ddp_gpu_error_kind kind;
    ddp_status status;
    const char* part;
  } cases[] = {{DDP_GPU_OUT_OF_MEMORY, DDP_ERROR_OUT_OF_MEMORY, "GPU 1 (T)"},
               {DDP_GPU_BAD_ARGUMENT, DDP_ERROR_INVALID_ARGUMENT, "tinyError"},
               {DDP_GPU_CAPTURE, DDP_ERROR_INVALID_STATE, "CUDA graph"},
               {DDP_GPU_LOST, DDP_ERROR_PEER_FAILED, "rank 3 (host a, pid 7)"},
               {DDP_GPU_NO_CODE, DDP_ERROR_NOT_SUPPORTED, "no code for GPU 1 (T)"},
               {DDP_GPU_OTHER, DDP_ERROR_INTERNAL, "the tiny one said no"}};
  for (const auto& each : cases) {
    tiny_gpu.kind = each.kind;
    expect_error(each.status, [&] { device.check(7, "dancing"); }, {each.part});
    expect_error(each.status, [&] { device.check(7, "dancing"); }, {"dancing"});
  }
  device.check(0, "nothing");
}

ddp_case(the_callers_device_is_current_again_afterwards) {
  const ddp_gpu_table table = tiny_gpu_table();
  tiny_gpu = TinyGpu{};
  const gpu::Device device(table, 1, "rank 0");
  {
    const gpu::Device::Current outer(device);
    expect_equal(tiny_gpu.current, 1, "inside");
    { const gpu::Device::Current inner(device); }
    expect_equal(tiny_gpu.current, 1, "still inside");
  }
  expect_equal(tiny_gpu.current, 0, "outside");
  tiny_gpu.used = 0;
  { const gpu::Device::Current current(device); }
  expect_equal(tiny_gpu.current, 1, "a device that nobody has used is not made current");
}

ddp_case(memory_that_lies_elsewhere_is_refused) {
  const ddp_gpu_table table = tiny_gpu_table();
  tiny_gpu = TinyGpu{};
  const gpu::Device device(table, 1, "rank 0");
  tiny_gpu.pointer_on = 0;
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { gpu::require_on(device, nullptr, "parameter \"w\""); },
               {"memory of GPU 0"});
  tiny_gpu.pointer_on = -1;
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { gpu::require_on(device, nullptr, "parameter \"w\""); }, {"no GPU memory"});
  tiny_gpu.pointer_on = 1;
  gpu::require_on(device, nullptr, "parameter \"w\"");
}
