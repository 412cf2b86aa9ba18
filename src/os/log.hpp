// SPDX-License-Identifier: Apache-2.0
// The log: messages go to one sink, which is process-wide, and to all listeners. printf-style, one line per message. Any
// thread.
// Tested by unit/os/log_test.cpp and capi/log_listeners_test.cpp.
#pragma once

#include "core/error.hpp"
#include "ddp/library.h"

namespace ddp::os {

void log(ddp_log_level level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

/// A message that reports this error: listeners get its status.
void log_of(const Error& error, ddp_log_level level, const char* format, ...) noexcept __attribute__((format(printf, 3, 4)));

[[nodiscard]] bool log_enabled(ddp_log_level level) noexcept;

/// NULL `fn` restores stderr.
void set_log_sink(ddp_log_level min_level, ddp_log_fn fn, void* user_data) noexcept;

struct LogListener {
  ddp_log_level min_level = DDP_LOG_OFF;
  ddp_log_listener_fn fn = nullptr;
  void* user_data = nullptr;
};
/// Its number, 1 or more. Throws OUT_OF_MEMORY.
[[nodiscard]] int64_t add_log_listener(const LogListener& listener);
/// It is not running then, unless it calls this itself, and is not called again. Throws INVALID_ARGUMENT.
void remove_log_listener(int64_t number);

/// What messages of this thread are about: a group by its number in this process, and this process's rank in it.
struct LogAbout {
  int64_t group = 0;  // 0: none
  int32_t rank = -1;  // -1: not known
};
[[nodiscard]] LogAbout& log_about() noexcept;
[[nodiscard]] int64_t next_log_group() noexcept;

/// As long as it lives.
class LogScope {
 public:
  explicit LogScope(const LogAbout& about) noexcept : before_(log_about()) { log_about() = about; }
  ~LogScope() { log_about() = before_; }
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  LogAbout before_;
};

}  // namespace ddp::os
