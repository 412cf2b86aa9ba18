// SPDX-License-Identifier: Apache-2.0
// The last failure on this thread, as a text and as numbers: fixed memory without a constructor, so it is safe when the
// library is loaded late, and nothing is allocated.
// Any thread.
// Tested by capi/library_test.c and capi/error_details_test.c.
#pragma once

#include <cstdint>
#include <span>

#include "core/error.hpp"
#include "ddp/library.h"

namespace ddp::capi {

inline constexpr int64_t kErrorCapacity = 2048;

/// `call`: the collective call that failed (bootstrap::UserCall); 0: none.
void set_last_error(const Error& error, int32_t call) noexcept;
void set_last_error(ddp_status status, const char* text, int32_t call) noexcept;
[[nodiscard]] const char* last_error() noexcept;
/// What is not known of the last failure is 0, or -1 bytes.
[[nodiscard]] ddp_error_details last_details() noexcept;
/// The first DDP_MAX_ERROR_LIST.
[[nodiscard]] std::span<const int32_t> last_ranks() noexcept;
[[nodiscard]] std::span<const int32_t> last_parameters() noexcept;

}  // namespace ddp::capi
