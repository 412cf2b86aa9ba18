// SPDX-License-Identifier: Apache-2.0
// The module that knows a GPU, as a test uses it: for memory, copies and streams of its own, and to find out what there is.
// It is the file that libddp opens (DDP_MODULE_PATH), so a test of this folder runs on a real GPU and, unchanged, on the one
// that is fake (tests/support/fake_gpu).
#pragma once

#include <dlfcn.h>

#include "device/gpu/gpu_abi.h"
#include "os/module_files.hpp"
#include "support/check.hpp"

namespace ddp::test::card {

using namespace ddp::test;  // so that a test needs `using namespace ddp::test::card` only

inline constexpr int kSkipped = 77;

[[noreturn]] inline void end_skipped(const std::string& why) {
  std::printf("skipped: %s\n", why.c_str());
  std::fflush(stdout);
  std::_Exit(kSkipped);
}

struct Module {
  void* library = nullptr;
  const ddp_gpu_table* table = nullptr;
  std::string why;  // why there is no module
};

inline const Module& module() {
  static const Module found = [] {
    Module it;
    const auto files = os::module_candidates("libddp_cuda.so");
    for (const std::string& file : files) {
      void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) continue;
      it.library = library;
      const auto query = reinterpret_cast<ddp_gpu_query_fn>(dlsym(library, DDP_GPU_QUERY_NAME));
      if (query != nullptr) it.table = query(DDP_GPU_VERSION);
      it.why = file + " speaks another version";
      return it;
    }
    it.why = "libddp_cuda.so was not found (tried " + os::listed(files) + ")";
    return it;
  }();
  return found;
}

inline const ddp_gpu_table& table() {
  if (module().table == nullptr) throw std::runtime_error(module().why);
  return *module().table;
}

/// Is it the one that needs no GPU? Then figures and real memory mean nothing, and ranks are threads.
inline bool is_fake() { return module().table != nullptr && strcasestr(module().table->name, "fake") != nullptr; }

inline void must(int32_t code, const char* call) {
  if (code == 0) return;
  throw std::runtime_error(std::string(call) + ": " + table().error_name(code) + ": " + table().error_text(code));
}
/// A function of the table that has to succeed: GPU_CALL(alloc(&memory, bytes)).
#define GPU_CALL(call) ddp::test::card::must(ddp::test::card::table().call, #call)

/// How many GPUs there are; 0 and a sentence if none can be used. The first call opens the driver, after which a process
/// must not fork.
inline int32_t count_devices(std::string& why) {
  why = module().why;
  if (module().table == nullptr) return 0;
  int32_t driver = 0;
  int32_t count = 0;
  if (table().driver_version(&driver) != 0 || driver == 0) {
    why = "there is no NVIDIA driver";
    return 0;
  }
  const int32_t code = table().device_count(&count);
  if (code != 0 || count == 0) why = code != 0 ? table().error_text(code) : "there is no GPU";
  return code != 0 ? 0 : count;
}

/// Ends the program as skipped unless there are this many GPUs. First line of a main().
inline void need_devices(int32_t wanted) {
  std::string why;
  const int32_t count = count_devices(why);
  if (count == 0) end_skipped("no GPU: " + why);
  if (count < wanted) end_skipped("needs " + std::to_string(wanted) + " GPUs, here is " + std::to_string(count));
  std::printf("on %s, %d GPU%s\n", table().name, count, count == 1 ? "" : "s");
  std::fflush(stdout);
}

}  // namespace ddp::test::card
