// One rank's own part of a collective, while the others wait for what comes of it.
// Tested by scarce/collectives_test.cpp, gpu_host/sync_failure_test.cpp and gpu_host/batch_norm_test.cpp.
#pragma once

#include <exception>

#include "core/error.hpp"
#include "group/group.hpp"

namespace ddp::group {

/// Gives what the body gives. What is thrown there breaks the group, so that nobody waits in vain, then goes on as an
/// exception.
template <class Body>
auto or_break(Group& group, Body&& body) {
  try {
    return body();
  } catch (const std::exception& thrown) {
    group.give_up(nullptr, to_error(thrown));
    throw;
  }
}

/// As or_break(), for the whole of a collective call: what breaks the group is what the other ranks cannot know of, which is
/// a lack of memory, threads or descriptors, or a defect of libddp, on this rank alone. Wrong arguments and what all ranks
/// agreed on leave it whole.
/// `collective`: false if the call is local this time, so that nobody waits for this rank.
template <class Body>
auto or_give_up(Group& group, const char* function, Body&& body, bool collective = true) {
  try {
    return body();
  } catch (const std::exception& thrown) {
    const Error error = to_error(thrown);
    const bool own = error.status() == DDP_ERROR_OUT_OF_MEMORY || error.status() == DDP_ERROR_INTERNAL;
    if (!collective || !own || error.is_agreed()) throw;
    group.give_up(function, error);
    if (error.text().rfind("ddp_", 0) == 0) throw;
    throw make_error(error.status(), "%s: %s", function, error.what());
  }
}

}  // namespace ddp::group
