// SPDX-License-Identifier: Apache-2.0
#include "collective/socket/ucx/log.hpp"

#include <ucs/config/types.h>
#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace ddp::ucx {
namespace {

thread_local Quiet* innermost = nullptr;

}  // namespace

struct Catcher {
  static ucs_log_func_rc_t on_line(const char*, unsigned, const char*, ucs_log_level_t level,
                                   const ucs_log_component_config_t*, const char* format, va_list arguments) {
    if (innermost == nullptr || level == UCS_LOG_LEVEL_FATAL || level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_CONTINUE;
    std::vsnprintf(innermost->line_, sizeof innermost->line_, format, arguments);
    return UCS_LOG_FUNC_RC_STOP;
  }
};

void catch_log() {
  static const bool caught = [] {
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_log_push_handler(&Catcher::on_line);
    return true;
  }();
  static_cast<void>(caught);
}

Quiet::Quiet() noexcept : outer_(innermost) { innermost = this; }

Quiet::~Quiet() { innermost = outer_; }

}  // namespace ddp::ucx
