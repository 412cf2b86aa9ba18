// SPDX-License-Identifier: Apache-2.0
// The C boundary: exceptions become a status and a text, and the library computes in the standard's floating-point
// environment. Thread cancellation (forced unwinding) passes through, because ending it would end the process.
// Any thread. Tested by capi/library_test.c and capi/error_details_test.c.
#pragma once

#include <cxxabi.h>

#include <cstdint>
#include <exception>
#include <span>
#include <utility>

#include "control/user_call.hpp"
#include "core/error.hpp"
#include "core/float_environment.hpp"
#include "ddp/library.h"

namespace ddp::capi {

// The last failure on this thread, as a text and as numbers: fixed memory without a constructor, so it is safe when the
// library is loaded late, and nothing is allocated.
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

/// Turn the exception being handled into a status; stores its text and its numbers. `function`: the public call, or NULL.
inline ddp_status translate(const char* function = nullptr) noexcept {
  const auto call = static_cast<int32_t>(function != nullptr ? bootstrap::user_call(function) : bootstrap::UserCall::kNone);
  try {
    throw;
  } catch (const std::exception& thrown) {
    const Error error = to_error(thrown);
    set_last_error(error, call);
    return error.status();
  } catch (...) {
    set_last_error(DDP_ERROR_INTERNAL, "an unknown exception inside libddp", call);
    return DDP_ERROR_INTERNAL;
  }
}

/// Run the body of a public function that itself computes nothing and that takes less than looking at the floating-point
/// environment.
template <class Body>
ddp_status guarded_short(const char* function, Body&& body) {
  try {
    body();
    return DDP_OK;
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return translate(function);
  }
}
template <class Body>
ddp_status guarded_short(Body&& body) {
  return guarded_short(nullptr, std::forward<Body>(body));
}

/// Run the body of a public function. `function`: its name, if it is collective.
template <class Body>
ddp_status guarded(const char* function, Body&& body) {
  const StandardFloats floats;
  return guarded_short(function, std::forward<Body>(body));
}
template <class Body>
ddp_status guarded(Body&& body) {
  return guarded(nullptr, std::forward<Body>(body));
}

/// As guarded_short(), for functions that return a value and have no status: `failed` is returned, the text is stored.
template <class Value, class Body>
Value guarded_value(Value failed, Body&& body) {
  try {
    return body();
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    (void)translate();
    return failed;
  }
}

/// Throws INVALID_ARGUMENT for a NULL argument: "ddp_model_create: out_model is NULL".
inline void require(const void* pointer, const char* function, const char* argument) {
  if (pointer == nullptr) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

}  // namespace ddp::capi
