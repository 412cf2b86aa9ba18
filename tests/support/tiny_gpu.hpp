// SPDX-License-Identifier: Apache-2.0
// A GPU table of which only the outermost layer works: devices are counted, named and chosen, everything else is absent. For
// what is decided before anything runs on a GPU; support/fake_gpu has the rest.
#pragma once

#include "device/gpu/gpu_abi.h"

namespace ddp::test {

struct TinyGpu {
  int32_t driver = 13000;
  int32_t devices = 2;
  int32_t code = 0;  // what the calls return
  int32_t kind = 0;  // of `code`
  int32_t current = 0;
  int32_t pointer_on = 0;
  int32_t used = 1;  // has the program used the other device?
};

/// The one that tiny_gpu_table() controls, on this thread.
inline thread_local TinyGpu tiny_gpu;

inline ddp_gpu_table tiny_gpu_table() {
  ddp_gpu_table table{};
  table.struct_size = sizeof table;
  table.version = DDP_GPU_VERSION;
  table.name = "Tiny 1.0";
  table.error_name = [](int32_t) { return "tinyError"; };
  table.error_text = [](int32_t) { return "the tiny one said no"; };
  table.error_kind = [](int32_t code) { return code == 0 ? int32_t{DDP_GPU_OK} : tiny_gpu.kind; };
  table.driver_version = [](int32_t* out) {
    *out = tiny_gpu.driver;
    return int32_t{0};
  };
  table.device_count = [](int32_t* out) {
    *out = tiny_gpu.devices;
    return tiny_gpu.code;
  };
  table.device_name = [](int32_t, char* buffer, int64_t) {
    buffer[0] = 'T';
    buffer[1] = '\0';
    return int32_t{0};
  };
  table.get_device = [](int32_t* out) {
    *out = tiny_gpu.current;
    return int32_t{0};
  };
  table.set_device = [](int32_t device) {
    tiny_gpu.current = device;
    return int32_t{0};
  };
  table.load_kernels = [] { return int32_t{0}; };
  table.pointer_device = [](const void*, int32_t* out, int32_t* host_reads) {
    *out = tiny_gpu.pointer_on;
    *host_reads = tiny_gpu.pointer_on < 0 ? 1 : 0;
    return int32_t{0};
  };
  table.device_is_used = [](int32_t, int32_t* out) {
    *out = tiny_gpu.used;
    return int32_t{0};
  };
  table.synchronize = [] { return tiny_gpu.code; };
  return table;
}

}  // namespace ddp::test
