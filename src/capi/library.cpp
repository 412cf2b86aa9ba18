// ddp/library.h and ddp/types.h.
#include "ddp/library.h"

#include <cstring>
#include <string>

#include "base/log.hpp"
#include "base/tensor.hpp"
#include "capi/guard.hpp"
#include "device/cpu/reduce.hpp"

using namespace ddp::capi;

int32_t ddp_version(void) { return DDP_VERSION; }

const char* ddp_version_string(void) { return DDP_VERSION_STRING; }

const char* ddp_build_info(void) {
  static const std::string& text = *new std::string(std::string("libddp ") + DDP_VERSION_STRING + ", " + __VERSION__ +
                                                    ", kernels: " + ddp::cpu::instruction_set());
  return text.c_str();
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
    ddp::set_log_sink(min_level, fn, user_data);
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
