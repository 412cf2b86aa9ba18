// SPDX-License-Identifier: Apache-2.0
// Do the ranks wait for each other in different calls? A pure function from the reports of the ranks to a verdict. Used by
// the TCP server's state machine and by the in-memory hub.
//
// A rank gets out of an exchange only when all ranks have joined it, and one that waits joins nothing else. So rank a is
// stuck if some stuck rank has not joined what a waits in. Ranks that are left when all others are taken away can never go
// on.
//
// A rank gets out of a wait for a message when something comes from the other rank. A rank that waits may answer what comes
// on a stream, on that stream alone: it asks for a message that was offered, or sends one that was asked for. So rank a is
// stuck if the other rank is, no other thread of theirs begins anything (BlockedCall::settled), and nothing is under way
// between the two: what b has written a has read, what a has written b has read, if b reads at all, and neither has more to
// write. Any rank may be meant: then this has to hold for all.
//
// Why no report can be too old. Say that the verdict is wrong, and let a be the first of the stuck ranks that got out of its
// wait after it had reported it. Then a stuck rank b joined that exchange before. If b joined it before its own report, the
// report would say so. If after, b got out of its own wait first, but a was the first. So neither slow ranks, nor stopped
// ones, nor slow messages can bring about a wrong verdict.
//
// Cost: a report is O(1) as long as some rank is not blocked, else some passes over all ranks. Threads: the owner's.
// Tested by unit/control/deadlock_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "control/call_state.hpp"
#include "control/control.hpp"
#include "control/texts.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap {

/// Two ranks of which the first waits for the second, for ever.
struct Deadlock {
  int32_t waiting = 0;
  int32_t absent = 0;
  std::vector<int32_t> chain{};  // if some wait for messages: ranks each of which waits for the next, the last for the first
};

/// By rank; empty if a rank is not blocked. Prefers two ranks that are in different public calls. As long as one is not
/// blocked and none waits for a message there is no verdict.
[[nodiscard]] std::optional<Deadlock> find_deadlock(const std::vector<std::optional<BlockedCall>>& ranks);

class DeadlockWatch {
 public:
  /// `members` outlives the watch; it names the ranks in the error.
  explicit DeadlockWatch(const std::vector<Member>& members);
  /// The present report of a rank: nothing if it is not blocked.
  void report(int32_t rank, std::optional<BlockedCall> blocked) noexcept;
  /// DIFFERENT_CALLS if some ranks can never continue; as find_deadlock(). Without memory for it, nothing this time.
  [[nodiscard]] std::optional<Error> verdict() const noexcept;
  /// The lowest rank but `but` that is known to wait for others.
  [[nodiscard]] std::optional<texts::Waiting> first_waiting(int32_t but) const noexcept;

 private:
  [[nodiscard]] Error error_of(const Deadlock& found) const;
  [[nodiscard]] Error error_of_chain(const std::vector<int32_t>& chain) const;

  const std::vector<Member>* members_;
  std::vector<std::optional<BlockedCall>> ranks_;
  size_t blocked_ = 0;
  size_t for_messages_ = 0;  // of them
};

}  // namespace ddp::bootstrap
