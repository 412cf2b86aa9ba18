// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/own_gpu.hpp"

#include "device/gpu/module.hpp"
#include "support/check.hpp"
#include "support/tiny_gpu.hpp"

struct UsesTiny {
  UsesTiny() {
    tiny_gpu = TinyGpu{};
    gpu::set_table(&table);
  }
  ~UsesTiny() { gpu::set_table(nullptr); }
  ddp_gpu_table table = tiny_gpu_table();
};

ddp_case(the_gpu_is_the_one_asked_for_or_that_of_the_local_rank) {
  const UsesTiny uses;
  expect_equal(gpu::OwnGpu(-1, 1, "rank 1").open().index(), 1, "the local rank's");
  expect_equal(gpu::OwnGpu(0, 1, "rank 1").open().index(), 0, "the one asked for");
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { static_cast<void>(gpu::OwnGpu(2, 0, "rank 0").open()); }, {"sees 2 GPUs"});
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { static_cast<void>(gpu::OwnGpu(-1, 5, "rank 5").open()); }, {"fewer ranks"});
  tiny_gpu.devices = 1;
  expect_equal(gpu::OwnGpu(-1, 5, "rank 5").open().index(), 0, "the only one");
}

ddp_case(a_tensor_is_bound_to_this_ranks_gpu_alone) {
  const UsesTiny uses;
  gpu::OwnGpu own(1, 0, "rank 0");
  float somewhere = 0;
  Tensor tensor = flat_tensor(&somewhere, DDP_F32, 1);
  tiny_gpu.pointer_on = -1;
  own.bind(tensor, "t");
  expect(own.opened() == nullptr && tensor.device == nullptr, "a tensor in host memory asks for no GPU");
  tiny_gpu.pointer_on = 0;
  tensor.device_index = 0;
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { own.bind(tensor, "t"); }, {"t is on GPU 0"});
  tensor.device_index = 1;
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { own.bind(tensor, "t"); }, {"memory of GPU 0"});
  tiny_gpu.pointer_on = 1;
  own.bind(tensor, "t");
  expect(tensor.device == own.opened() && tensor.device != nullptr, "bound");
}
