// SPDX-License-Identifier: Apache-2.0
// The frame of a public collective call on a group: is it allowed now, which call it is, and what an error in it does.
// Threads: as Group.
// Tested by conformance/collectives_test.cpp and process/first_cause_test.cpp.
#pragma once

#include <utility>

#include "control/call_state.hpp"
#include "exchange/gpu_side.hpp"
#include "group/channels.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"
#include "group/requests.hpp"

namespace ddp::group {

/// A collective that fails for the group's sake fails for everybody, with one cause.
template <class Body>
void run_collective(Group& group, bootstrap::UserCall call, const Body& body) {
  group.check_idle(bootstrap::name_of(call));
  const bootstrap::CallState::In inside(group.calls(), call);
  group.health().check_open();  // again: exit() looks in the other order
  or_break(group, Part::kExchange, body);
}

/// Where the request of a call goes that is to be posted; NULL: the call is made, and waits.
using Posting = RequestPtr*;

/// The public call that the program wrote, and its name.
[[nodiscard]] constexpr bootstrap::UserCall as_made(bootstrap::UserCall call, Posting posting) noexcept {
  return posting == nullptr ? call : bootstrap::posted(call);
}
[[nodiscard]] inline const char* name_as_made(bootstrap::UserCall call, Posting posting) noexcept {
  return bootstrap::name_of(as_made(call, posting));
}

/// The collectives among which a call has its place.
struct Sequence {
  collective::Transport& transport;
  messages::Space space;
};

/// Opens the channel of requests if need be; `call` posts.
void begin_post(Group& group, bootstrap::UserCall call);

/// body(sequence) is the whole of a collective: run now, or posted. It owns what it needs.
template <class Body>
void run_or_post(Group& group, bootstrap::UserCall call, Posting posting, Body body) {
  if (posting == nullptr)
    return run_collective(group, call, [&] { body(Sequence{group.channels().own(), messages::Space::kCollective}); });
  const bootstrap::UserCall made = bootstrap::posted(call);
  begin_post(group, made);
  *posting = group.channels().requests().lane().post([&group, made, body = std::move(body)] {
    const bootstrap::CallState::Requested requested(group.calls(), made);
    or_break(group, Part::kCall, bootstrap::name_of(made), [&] {
      group.health().check_usable();
      or_break(group, Part::kExchange, [&] {
        body(Sequence{group.channels().requests().transport(), messages::Space::kRequest});
      });
    });
  });
}

/// The same for a collective on this tensor. Where its stream orders what follows it is made at once, and its request has
/// ended.
template <class Body>
void run_or_post(Group& group, bootstrap::UserCall call, const Tensor& tensor, Posting posting, Body body) {
  const bool at_once = posting != nullptr && group.gpu_side().is_ordered_by_stream(tensor);
  if (!at_once) return run_or_post(group, call, posting, std::move(body));
  run_collective(group, bootstrap::posted(call), [&] {
    body(Sequence{group.channels().own(), messages::Space::kCollective});
  });
  *posting = Request::make_ended();
}

/// An all-reduce of numbers in host memory.
void reduce_metrics(Group& group, const Tensor& values, ddp_reduce op);

/// Throws INVALID_ARGUMENT for what is no rank of the group.
inline void check_root(const Group& group, const char* function, int32_t root) {
  if (root < 0 || root >= group.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: root is %d; the group has the ranks 0 to %d", function, root,
                     group.size() - 1);
}

/// Throws INVALID_ARGUMENT or NOT_SUPPORTED for an operation that there is not for this tensor, where it lies.
void check_operation(const Group& group, const char* function, const Tensor& tensor, ddp_reduce op);

}  // namespace ddp::group
