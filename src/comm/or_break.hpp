// One rank's own part of a collective, while the others wait for what comes of it.
// Tested by gpu_host/sync_failure_test.cpp and gpu_host/batch_norm_test.cpp.
#pragma once

#include "base/error.hpp"
#include "comm/group.hpp"

namespace ddp {

/// Gives what the body gives. What is thrown there breaks the group, so that nobody waits in vain, then goes on as an exception.
template <class Body>
auto or_break(Group& group, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (group.size() > 1)
      group.abort(Error(breaks_group(error.status()) ? error.status() : DDP_ERROR_PEER_FAILED,
                        group.name_of(group.rank()) + " could not go on: " + error.text()));
    throw;
  }
}

}  // namespace ddp
