// SPDX-License-Identifier: Apache-2.0
#include "capi/last_error.hpp"

#include <cstring>

namespace ddp::capi {
namespace {
thread_local char text_of_thread[kErrorCapacity];
}

void set_last_error(const char* text) noexcept {
  if (text == text_of_thread) return;
  std::strncpy(text_of_thread, text, kErrorCapacity - 1);
  text_of_thread[kErrorCapacity - 1] = '\0';
}

const char* last_error() noexcept { return text_of_thread; }

}  // namespace ddp::capi
