// What happened on this rank, as a value: a rank that failed must still meet the others (Group::agree) before it throws.
// Any thread.
// Tested by conformance/state_test.cpp.
#pragma once

#include <cxxabi.h>

#include <exception>
#include <optional>

#include "core/error.hpp"

namespace ddp::checkpoint {

/// Run the body; its error, if it threw one. The end of a thread (forced unwinding) passes through.
template <class Body>
[[nodiscard]] std::optional<Error> outcome_of(Body&& body) {
  try {
    body();
    return std::nullopt;
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& thrown) {
    return to_error(thrown);
  } catch (...) {
    return Error(DDP_ERROR_CALLBACK, "a callback threw an exception");
  }
}

}  // namespace ddp::checkpoint
