// SPDX-License-Identifier: Apache-2.0
// The C boundary: exceptions become a status and a text, and the library computes in the standard's floating-point
// environment. Thread cancellation (forced unwinding) passes through, because ending it would end the process.
#pragma once

#include <cxxabi.h>

#include <exception>
#include <utility>

#include "capi/last_error.hpp"
#include "control/user_call.hpp"
#include "core/error.hpp"
#include "core/float_environment.hpp"

namespace ddp::capi {

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
