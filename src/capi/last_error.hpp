// SPDX-License-Identifier: Apache-2.0
// The text of the last failure on this thread: a fixed buffer without a constructor, so it is safe when the library is
// loaded late.
// Any thread.
#pragma once

#include <cstdint>

#include "ddp/types.h"

namespace ddp::capi {

inline constexpr int64_t kErrorCapacity = 2048;

void set_last_error(const char* text) noexcept;
[[nodiscard]] const char* last_error() noexcept;

}  // namespace ddp::capi
