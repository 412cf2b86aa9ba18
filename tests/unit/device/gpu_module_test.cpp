// SPDX-License-Identifier: Apache-2.0

#include "device/gpu/module.hpp"
#include "support/check.hpp"
#include "support/tiny_gpu.hpp"

ddp_case(a_missing_module_says_where_it_was_searched_and_what_to_do) {
  const auto text =
      expect_error(DDP_ERROR_NOT_SUPPORTED, [] { static_cast<void>(gpu::open_module({"/nowhere/libddp_cuda.so"})); });
  expect_contains(text, "/nowhere/libddp_cuda.so");
  expect_contains(text, "DDP_MODULE_PATH");
}

ddp_case(a_file_that_is_no_module_is_refused) {
  expect_error(DDP_ERROR_NOT_SUPPORTED, [] { static_cast<void>(gpu::open_module({"/etc/passwd"})); }, {"/etc/passwd"});
}

ddp_case(no_driver_and_no_gpu_are_told_apart) {
  const ddp_gpu_table table = tiny_gpu_table();
  tiny_gpu = TinyGpu{};
  expect_equal(gpu::count_devices(table), 2, "two GPUs");
  tiny_gpu.driver = 0;
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { static_cast<void>(gpu::count_devices(table)); }, {"no NVIDIA driver"});
  tiny_gpu = TinyGpu{};
  tiny_gpu.devices = 0;
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { static_cast<void>(gpu::count_devices(table)); }, {"CUDA_VISIBLE_DEVICES"});
}

ddp_case(what_keeps_a_gpu_from_being_used_has_its_own_sentence) {
  const ddp_gpu_table table = tiny_gpu_table();
  tiny_gpu = TinyGpu{};
  const auto text_of = [&](int32_t kind) {
    tiny_gpu.code = 7;
    tiny_gpu.kind = kind;
    return expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { static_cast<void>(gpu::count_devices(table)); });
  };
  tiny_gpu.driver = 12020;
  expect_contains(text_of(DDP_GPU_NO_DRIVER), "driver is for CUDA 12.2, which is too old for the CUDA module (Tiny 1.0)");
  expect_contains(text_of(DDP_GPU_NOT_READY), "nvidia-fabricmanager");
  expect_contains(text_of(DDP_GPU_OTHER), "the tiny one said no");
}
