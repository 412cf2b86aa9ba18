#include "base/error.hpp"

#include <cstdarg>
#include <cstdio>

namespace ddp {

const char* status_name(ddp_status status) noexcept {
  switch (status) {
    case DDP_OK: return "DDP_OK";
    case DDP_ERROR_INVALID_ARGUMENT: return "DDP_ERROR_INVALID_ARGUMENT";
    case DDP_ERROR_INVALID_STATE: return "DDP_ERROR_INVALID_STATE";
    case DDP_ERROR_NOT_SUPPORTED: return "DDP_ERROR_NOT_SUPPORTED";
    case DDP_ERROR_OUT_OF_MEMORY: return "DDP_ERROR_OUT_OF_MEMORY";
    case DDP_ERROR_TIMED_OUT: return "DDP_ERROR_TIMED_OUT";
    case DDP_ERROR_PEER_FAILED: return "DDP_ERROR_PEER_FAILED";
    case DDP_ERROR_ABORTED: return "DDP_ERROR_ABORTED";
    case DDP_ERROR_MISMATCH: return "DDP_ERROR_MISMATCH";
    case DDP_ERROR_IO: return "DDP_ERROR_IO";
    case DDP_ERROR_CALLBACK: return "DDP_ERROR_CALLBACK";
    case DDP_ERROR_INTERNAL: return "DDP_ERROR_INTERNAL";
  }
  return "unknown ddp_status";
}

Error make_error(ddp_status status, const char* format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return Error(status, text);
}

}  // namespace ddp
