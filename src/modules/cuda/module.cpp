// SPDX-License-Identifier: Apache-2.0
// The one export of the module: the table of device/gpu/gpu_abi.h. The table is filled once and is valid as long as the
// module is loaded.
// Any thread.
// Tested by unit/cuda/module_test.cpp.
#include "modules/cuda/kernels/launchers.hpp"
#include "modules/cuda/nccl_table.hpp"
#include "modules/cuda/runtime.hpp"

namespace {

#define DDP_TEXT_OF(number) #number
#define DDP_TEXT(number) DDP_TEXT_OF(number)

ddp_gpu_table make_table() noexcept {
  ddp_gpu_table table{};
  table.struct_size = sizeof table;
  table.version = DDP_GPU_VERSION;
  table.name = "CUDA " DDP_TEXT(DDP_CUDA_MAJOR) "." DDP_TEXT(DDP_CUDA_MINOR);
  ddp::cuda::fill_runtime(table);
  ddp::cuda::fill_kernels(table);
  table.open_nccl = ddp::cuda::open_nccl;
  table.find_nccl = ddp::cuda::find_nccl;
  return table;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ddp_gpu_table* ddp_gpu_query(int32_t version);

extern "C" const ddp_gpu_table* ddp_gpu_query(int32_t version) {
  static const ddp_gpu_table table = make_table();
  return version == DDP_GPU_VERSION ? &table : nullptr;
}
