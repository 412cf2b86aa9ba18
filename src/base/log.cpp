#include "base/log.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace ddp {
namespace {

ddp_log_level level_from_environment() noexcept {
  const char* text = std::getenv("DDP_LOG");
  if (text == nullptr) return DDP_LOG_WARNING;
  if (std::strcmp(text, "debug") == 0) return DDP_LOG_DEBUG;
  if (std::strcmp(text, "info") == 0) return DDP_LOG_INFO;
  if (std::strcmp(text, "error") == 0) return DDP_LOG_ERROR;
  if (std::strcmp(text, "off") == 0) return DDP_LOG_OFF;
  return DDP_LOG_WARNING;
}

const char* level_name(ddp_log_level level) noexcept {
  switch (level) {
    case DDP_LOG_DEBUG: return "debug";
    case DDP_LOG_INFO: return "info";
    case DDP_LOG_WARNING: return "warning";
    default: return "error";
  }
}

// Never destroyed, so that threads that log while the process ends stay safe.
struct Sink {
  std::mutex mutex;  // guards fn and user_data, and keeps messages apart
  ddp_log_fn fn = nullptr;
  void* user_data = nullptr;
  std::atomic<ddp_log_level> min_level{level_from_environment()};
};

Sink& sink() noexcept {
  static Sink& instance = *new Sink;
  return instance;
}

}  // namespace

bool log_enabled(ddp_log_level level) noexcept { return level >= sink().min_level.load(std::memory_order_relaxed); }

void log(ddp_log_level level, const char* format, ...) noexcept {
  if (!log_enabled(level)) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  if (out.fn != nullptr)
    out.fn(out.user_data, level, text);
  else
    std::fprintf(stderr, "libddp %s: %s\n", level_name(level), text);
}

void set_log_sink(ddp_log_level min_level, ddp_log_fn fn, void* user_data) noexcept {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  out.fn = fn;
  out.user_data = user_data;
  out.min_level.store(min_level, std::memory_order_relaxed);
}

}  // namespace ddp
