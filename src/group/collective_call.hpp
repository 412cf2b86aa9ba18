// SPDX-License-Identifier: Apache-2.0
// The frame of a public collective call on a group: is it allowed now, which call it is, and what an error in it does.
// Threads: as Group.
// Tested by conformance/collectives_test.cpp and process/first_cause_test.cpp.
#pragma once

#include "control/call_state.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"

namespace ddp::group {

/// A collective that fails for the group's sake fails for everybody, with one cause.
template <class Body>
void run_collective(Group& group, bootstrap::UserCall call, const Body& body) {
  group.check_idle(bootstrap::name_of(call));
  const bootstrap::CallState::In inside(group.calls(), call);
  group.health().check_open();  // again: exit() looks in the other order
  or_break(group, Part::kExchange, body);
}

/// Throws INVALID_ARGUMENT for what is no rank of the group.
inline void check_root(const Group& group, const char* function, int32_t root) {
  if (root < 0 || root >= group.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: root is %d; the group has the ranks 0 to %d", function, root,
                     group.size() - 1);
}

/// Throws INVALID_ARGUMENT or NOT_SUPPORTED for an operation that there is not for this tensor, where it lies.
void check_operation(const Group& group, const char* function, const Tensor& tensor, ddp_reduce op);

}  // namespace ddp::group
