// SPDX-License-Identifier: Apache-2.0
// Catch what a body throws: return it as a value, or report and rethrow it. Apart from the entry points from C and calls of
// the program's functions, all code that would catch uses these. The end of a thread (forced unwinding) passes through. Any
// thread. Tested by unit/core/attempt_test.cpp.
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

/// Returns the result of `body`. An exception from it is passed to `tell`, and then rethrown unchanged, unless `tell`
/// throws.
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
