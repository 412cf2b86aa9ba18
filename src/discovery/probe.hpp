// SPDX-License-Identifier: Apache-2.0
// Ask at addresses whether rank 0 of our group is there, and be let in; and watch one.
// Tested by unit/discovery/watch_test.cpp, process/impostor_test.cpp and capi/recovery_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "discovery/attempt.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

/// Blocking, with a limit at every step. Any thread.
[[nodiscard]] Probe probe(const Address& target, const Caller& caller, os::Deadline deadline, const FirstWords& words = {});

/// The same at all of them, each begun when the one before it has ended or is slow, so that a stranger who holds one
/// connection does not block the others. One answer for each probed address; if one admits, it is the last, and the others
/// are not awaited.
[[nodiscard]] std::vector<Probe> probe_all(const std::vector<Address>& targets, const Caller& caller, os::Deadline deadline,
                                           const FirstWords& words = {});

/// A place where a rank may serve later. A connection to it is held open, which shows whether its process lives.
/// One thread.
class Watch {
 public:
  enum class State {
    kConnecting,
    kUnreachable,  // nothing has answered for a while; it may still
    kListening,    // its process, or at least its kernel, is there, but no rank serves that has proved to be of our group
    kServing,      // and has proved it
    kGone          // nothing listens any more, or another program does: for good
  };
  Watch(Address target, const Caller& caller) : target_(std::move(target)), caller_(caller) {}

  /// Never waits. Throws OUT_OF_MEMORY.
  [[nodiscard]] State look();
  /// The server there has admitted this rank. Only while it serves; afterwards the connection is made anew.
  [[nodiscard]] Admission enter();
  [[nodiscard]] const Address& target() const noexcept { return target_; }

 private:
  void look_at_attempt();
  void take(Probe answer);
  [[nodiscard]] bool is_still_connected() const;

  Address target_;
  Caller caller_;
  State state_ = State::kConnecting;
  std::optional<Attempt> attempt_;
  std::optional<Admission> admission_;  // while it serves
  os::Deadline reached_by_ = os::Deadline::never();
};

/// The record of a signpost that has admitted us; "" if it sent none.
[[nodiscard]] std::string read_signpost(const Admission& admission, os::Deadline deadline);

}  // namespace ddp::bootstrap
