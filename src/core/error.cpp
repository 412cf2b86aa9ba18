// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "core/attempt.hpp"

namespace ddp {
namespace {

/// The sentence, or the one that needs no memory.
Error made_or_out_of_memory(ddp_status status, const char* text) noexcept {
  Error made;
  static_cast<void>(try_to([&] { made = Error(status, text); }));
  return made;
}

}  // namespace

const std::string& Error::text() const noexcept {
  static const std::string out_of_memory("out of memory");  // short enough to be in the object itself
  return text_ != nullptr ? *text_ : out_of_memory;
}

Error Error::with(ErrorDetails details) const noexcept {
  Error copy(*this);
  static_cast<void>(try_to([&] { copy.details_ = std::make_shared<const ErrorDetails>(std::move(details)); }));
  return copy;
}

Error to_error(const std::exception& thrown) noexcept {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) return Error();
  if (const auto* error = dynamic_cast<const std::system_error*>(&thrown)) {
    const int code = error->code().value();
    char text[512];
    const char* const what = code == EAGAIN ? "no thread could be started: " : "";  // nothing else throws this code
    std::snprintf(text, sizeof text, "%s%s%s", what, thrown.what(), advice_of_errno(code));
    return made_or_out_of_memory(status_of_errno(code, DDP_ERROR_INTERNAL), text);
  }
  return made_or_out_of_memory(DDP_ERROR_INTERNAL, thrown.what());
}

ddp_status status_of_errno(int error, ddp_status otherwise) noexcept {
  const bool exhausted = error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOBUFS || error == EAGAIN;
  return exhausted ? DDP_ERROR_OUT_OF_MEMORY : otherwise;
}

const char* advice_in(std::string_view text) noexcept {
  for (const int error : {ENFILE, EMFILE, ENOMEM, ENOBUFS})  // the words of EMFILE begin those of ENFILE
    if (text.find(std::strerror(error)) != std::string_view::npos) return advice_of_errno(error);
  return "";
}

const char* advice_of_errno(int error) noexcept {
  switch (error) {
    case EMFILE: return "; raise the process's limit of open files (ulimit -n)";
    case ENFILE: return "; raise the system's limit of open files (fs.file-max)";
    // A thread whose stack cannot be mapped is EAGAIN too.
    case EAGAIN:
      return "; raise the limit of processes and threads (ulimit -u, or pids.max of the control group) or of memory (ulimit "
             "-v)";
    case ENOMEM:
    case ENOBUFS:
      return "; the system has no memory left, or this process has reached its limit (ulimit -v, or the container's)";
    default: return "";
  }
}

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
    case DDP_ERROR_TOO_FEW_RANKS: return "DDP_ERROR_TOO_FEW_RANKS";
    case DDP_ERROR_FENCED: return "DDP_ERROR_FENCED";
    case DDP_ERROR_NO_CHECKPOINT: return "DDP_ERROR_NO_CHECKPOINT";
    case DDP_ERROR_NO_MAJORITY: return "DDP_ERROR_NO_MAJORITY";
    case DDP_ERROR_DIFFERENT_CALLS: return "DDP_ERROR_DIFFERENT_CALLS";
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
