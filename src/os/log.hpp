// SPDX-License-Identifier: Apache-2.0
// The one sink for messages, and the only process-wide setting. printf-style, one line per message. Any thread.
// Tested by unit/os/log_test.cpp.
#pragma once

#include "ddp/library.h"

namespace ddp::os {

void log(ddp_log_level level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

[[nodiscard]] bool log_enabled(ddp_log_level level) noexcept;

/// NULL `fn` restores stderr.
void set_log_sink(ddp_log_level min_level, ddp_log_fn fn, void* user_data) noexcept;

}  // namespace ddp::os
