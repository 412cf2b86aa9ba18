// SPDX-License-Identifier: Apache-2.0
#include "os/log.hpp"

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>

#include "core/attempt.hpp"
#include "core/callback.hpp"
#include "os/process.hpp"

namespace ddp::os {
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

struct Receiver {
  ddp_log_fn fn = nullptr;
  void* user_data = nullptr;
};

// In memory of its own and never destroyed, so that it cannot fail and threads that log while the process ends stay safe.
struct Sink {
  PerProcess process;
  std::mutex mutex;  // guards all below, and keeps messages apart
  Receiver receivers[2];
  std::atomic<int> receiver{0};  // changed at once, so that a fork never finds half of one
  std::atomic<ddp_log_level> min_level{level_from_environment()};
};

Sink& sink() noexcept {
  alignas(Sink) static std::byte memory[sizeof(Sink)];
  static Sink& instance = *new (memory) Sink;
  instance.process.enter(
      [] { new (static_cast<void*>(&instance.mutex)) std::mutex; });  // a fork finds it as some thread left it
  return instance;
}

/// The caller continues, whatever the program's function does; a message that the function fails on is written to stderr.
void hand_over(const Receiver& receiver, ddp_log_level level, const char* text) noexcept {
  const auto call = [&] { call_program("the log function", [&] { receiver.fn(receiver.user_data, level, text); }); };
  if (const std::optional<Error> error = try_to(call))
    std::fprintf(stderr, "libddp %s: %s\nlibddp error: %s\n", level_name(level), text, error->what());
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
  const NoCancellation whole;
  const std::lock_guard lock(out.mutex);
  if (const Receiver& receiver = out.receivers[out.receiver.load()]; receiver.fn != nullptr)
    hand_over(receiver, level, text);
  else
    std::fprintf(stderr, "libddp %s: %s\n", level_name(level), text);
}

void set_log_sink(ddp_log_level min_level, ddp_log_fn fn, void* user_data) noexcept {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  const int other = 1 - out.receiver.load();
  out.receivers[other] = {fn, user_data};
  out.receiver.store(other);
  out.min_level.store(min_level, std::memory_order_relaxed);
}

}  // namespace ddp::os
