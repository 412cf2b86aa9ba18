// SPDX-License-Identifier: Apache-2.0
// ddp/library.h and ddp/types.h.
#include "ddp/library.h"

#include <unistd.h>

#include <cstring>
#include <string>

#include "capi/guard.hpp"
#include "core/tensor.hpp"
#include "device/cpu/reduce.hpp"
#include "os/log.hpp"
#include "os/module_files.hpp"

using namespace ddp::capi;

#if defined(__clang__)
#define DDP_COMPILER "Clang " __clang_version__
#elif defined(__GNUC__)
#define DDP_COMPILER "GCC " __VERSION__
#else
#define DDP_COMPILER __VERSION__
#endif

namespace {

// "Gloo found at /usr/lib/ddp/libddp_gloo.so". Modules are not opened for this: that could start threads or fail.
std::string describe_module(const char* name, const char* file_name, bool built) {
  for (const std::string& file : ddp::os::module_candidates(file_name))
    if (access(file.c_str(), R_OK) == 0) return std::string(name) + " found at " + file;
  return std::string(name) + (built ? " built but not found (see DDP_MODULE_PATH)" : " not built");
}

std::string build_info() {
  // Either macro may be "".
  const std::string build_type = DDP_BUILD_TYPE, sanitizers = DDP_SANITIZERS;  // NOLINT(readability-redundant-string-init)
  return std::string("libddp ") + DDP_VERSION_STRING + ", " + DDP_COMPILER + ", " +
         (build_type.empty() ? "no build type" : build_type) + (sanitizers.empty() ? "" : " with sanitizers " + sanitizers) +
         ", kernels: " + ddp::cpu::instruction_set() +
         ", modules: " + describe_module("Gloo", "libddp_gloo.so", DDP_GLOO_BUILT != 0) + ", " +
         describe_module("CUDA", "libddp_cuda.so", DDP_CUDA_BUILT != 0);
}

}  // namespace

int32_t ddp_version(void) { return DDP_VERSION; }

const char* ddp_version_string(void) { return DDP_VERSION_STRING; }

const char* ddp_build_info(void) {
  return guarded_value("", [] {
    static const std::string& text = *new std::string(build_info());
    return text.c_str();
  });
}

const char* ddp_status_name(ddp_status status) { return ddp::status_name(status); }

const char* ddp_last_error(void) { return last_error(); }

int64_t ddp_copy_last_error(char* buffer, int64_t capacity) {
  const char* text = last_error();
  const auto needed = static_cast<int64_t>(std::strlen(text)) + 1;
  if (buffer != nullptr && capacity > 0) {
    const int64_t kept = needed <= capacity ? needed - 1 : capacity - 1;
    std::memcpy(buffer, text, static_cast<size_t>(kept));
    buffer[kept] = '\0';
  }
  return needed;
}

ddp_status ddp_set_log(ddp_log_level min_level, ddp_log_fn fn, void* user_data) {
  return guarded([&] {
    if (min_level < DDP_LOG_DEBUG || min_level > DDP_LOG_OFF)
      throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_set_log: min_level is %d; 0 to 4 are possible",
                            static_cast<int>(min_level));
    ddp::os::set_log_sink(min_level, fn, user_data);
  });
}

ddp_status ddp_tensor_init(ddp_tensor* tensor, void* data, ddp_dtype dtype, int32_t ndim, const int64_t* shape) {
  return guarded([&] {
    require(tensor, "ddp_tensor_init", "tensor");
    ddp_tensor made{};
    made.data = data;
    made.dtype = dtype;
    made.device = DDP_CPU;
    made.ndim = ndim;
    if (ndim > 0) require(shape, "ddp_tensor_init", "shape");
    for (int32_t d = 0; d < ndim && d < DDP_MAX_DIMENSIONS; ++d) made.shape[d] = shape[d];
    (void)ddp::checked_tensor(&made, "ddp_tensor_init: the tensor");
    *tensor = made;
  });
}
