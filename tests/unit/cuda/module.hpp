// SPDX-License-Identifier: Apache-2.0
// The module that was built, for tests. It is opened as the core opens it.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "device/gpu/gpu_abi.h"
#include "os/module_files.hpp"

namespace ddp::test {

/// The path of libddp_cuda.so, or an empty text.
inline std::string module_path() {
  for (const std::string& file : os::module_candidates("libddp_cuda.so"))
    if (access(file.c_str(), F_OK) == 0) return file;
  return {};
}

/// The table of the module, or NULL and a printed line: it was not built.
inline const ddp_gpu_table* built_module() {
  const std::string path = module_path();
  if (path.empty()) {
    std::puts("skipped: libddp_cuda.so was not built (no CUDA compiler, or DDP_CUDA is OFF)");
    return nullptr;
  }
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    std::printf("%s\n", dlerror());
    std::abort();
  }
  const auto query = reinterpret_cast<ddp_gpu_query_fn>(dlsym(module, DDP_GPU_QUERY_NAME));
  return query(DDP_GPU_VERSION);
}

}  // namespace ddp::test
