// SPDX-License-Identifier: Apache-2.0
// ddp/library.h and ddp/types.h.
#include "ddp/library.h"

#include <unistd.h>

#include <cstring>
#include <string>

#include "capi/guard.hpp"
#include "capi/lists.hpp"
#include "capi/options.hpp"
#include "control/user_call.hpp"
#include "core/tensor.hpp"
#include "ddp/tier.h"
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

void check_level(ddp_log_level level, const char* function) {
  if (level < DDP_LOG_DEBUG || level > DDP_LOG_OFF)
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: min_level is %d; 0 to 4 are possible", function,
                          static_cast<int>(level));
}

}  // namespace

int32_t ddp_version(void) { return DDP_VERSION; }

int32_t ddp_experimental_version(void) { return DDP_EXPERIMENTAL_VERSION; }

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

ddp_status ddp_get_error_details(ddp_error_details* out_details) {
  constexpr const char* kName = "ddp_get_error_details";
  return guarded_short([&] {
    require(out_details, kName, "out_details");
    fill_sized(out_details, last_details(), kName);
  });
}

ddp_status ddp_get_error_ranks(int32_t* ranks, int32_t capacity, int32_t* out_count) {
  return guarded_short([&] {
    const ListTo to{ranks, capacity, out_count};
    check_list(to, "ranks", "ddp_get_error_ranks");
    write_list(to, last_ranks());
    *out_count = last_details().rank_count;
  });
}

ddp_status ddp_get_error_parameters(int32_t* indices, int32_t capacity, int32_t* out_count) {
  return guarded_short([&] {
    const ListTo to{indices, capacity, out_count};
    check_list(to, "indices", "ddp_get_error_parameters");
    write_list(to, last_parameters());
    *out_count = last_details().parameter_count;
  });
}

const char* ddp_call_name(int32_t call) {
  if (call < 0 || call > static_cast<int32_t>(ddp::bootstrap::kLastUserCall)) return "";
  return ddp::bootstrap::name_of(static_cast<ddp::bootstrap::UserCall>(call));
}

ddp_status ddp_set_log(ddp_log_level min_level, ddp_log_fn fn, void* user_data) {
  return guarded([&] {
    check_level(min_level, "ddp_set_log");
    ddp::os::set_log_sink(min_level, fn, user_data);
  });
}

ddp_status ddp_add_log_listener(ddp_log_level min_level, ddp_log_listener_fn fn, void* user_data, int64_t* out_listener) {
  constexpr const char* kName = "ddp_add_log_listener";
  return guarded([&] {
    require(reinterpret_cast<const void*>(fn), kName, "fn");
    require(out_listener, kName, "out_listener");
    check_level(min_level, kName);
    *out_listener = ddp::os::add_log_listener({min_level, fn, user_data});
  });
}

ddp_status ddp_remove_log_listener(int64_t listener) {
  return guarded([&] { ddp::os::remove_log_listener(listener); });
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
