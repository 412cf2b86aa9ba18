// SPDX-License-Identifier: Apache-2.0
// What a body throws: taken as a value, or told on its way. Apart from the entry points from C and calls of the program's
// functions, whoever would catch uses these. The end of a thread (forced unwinding) passes through.
// Any thread.
// Tested by unit/core/attempt_test.cpp.
#pragma once

#include <exception>
#include <optional>

#include "core/error.hpp"

namespace ddp {

/// What `body` threw, a lack of memory, threads or descriptors too. What is no `Thrown` passes through.
template <class Thrown = std::exception, class Body>
[[nodiscard]] std::optional<Error> try_to(Body&& body) {
  try {
    body();
  } catch (const Thrown& thrown) {
    return to_error(thrown);
  }
  return std::nullopt;
}

/// Gives what `body` gives. `tell` hears of what is thrown there, which then goes on as it is, unless `tell` throws.
template <class Thrown = std::exception, class Body, class Tell>
auto on_error(Body&& body, Tell&& tell) {
  try {
    return body();
  } catch (const Thrown& thrown) {
    tell(to_error(thrown));
    throw;
  }
}

}  // namespace ddp
