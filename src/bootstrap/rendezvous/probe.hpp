// SPDX-License-Identifier: Apache-2.0
// Ask one address whether rank 0 of our group is there, and be let in.
//
// The server speaks first, so that a foreign service is told nothing: its banner says which group it is. Blocking, with a
// limit at every step. Any thread.
// Tested by process/rendezvous_test.cpp and capi/recovery_test.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/control/auth.hpp"
#include "bootstrap/control/net.hpp"
#include "bootstrap/control/tcp_control.hpp"
#include "core/error.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

/// A place where rank 0 may be, and what it must show there.
struct Address {
  net::Endpoint where;
  auth::GroupId group{};
  auth::Token token;
};

struct Probe {
  enum class Answer {
    kAdmitted,
    kNobody,      // nothing listens, or it went away
    kForeign,     // another program
    kOtherGroup,  // libddp, but not our group
    kRefused,     // our group, but it does not take us: `refusal`
  };
  Answer answer = Answer::kNobody;
  std::optional<Admission> admission;
  std::optional<Error> refusal;
  std::string record;  // for the error text of whoever gives up
  int error = 0;       // kNobody: errno of the connection, if there was none
};

/// What a rank says at once, behind its proof and before it has rank 0's: whoever knows the group, but not its token, and
/// takes rank 0's place is told no more than this. Made when there is a connection.
using FirstWords = std::function<std::vector<FirstWord>(const net::Socket&)>;

[[nodiscard]] Probe probe(const Address& target, int32_t rank, int32_t size, os::Deadline deadline,
                          const FirstWords& words = {});

/// A place where somebody may come to serve later. A connection to it is held open, which shows whether its process lives.
/// One thread.
class Watch {
 public:
  enum class State {
    kConnecting,
    kUnreachable,  // nothing has answered for a while; it may still
    kListening,    // its process, or at least its kernel, is there, but nobody serves
    kServing,      // with our group's banner
    kGone          // nothing listens any more, or another program: for good
  };
  explicit Watch(Address target) : target_(std::move(target)) {}

  /// Never waits. Throws OUT_OF_MEMORY.
  [[nodiscard]] State look();
  /// Whoever serves there is asked to let this rank in. Only while it serves; afterwards the connection is made anew.
  [[nodiscard]] Probe enter(int32_t rank, int32_t size, os::Deadline deadline);
  [[nodiscard]] const Address& target() const noexcept { return target_; }

 private:
  void begin();
  void look_whether_connected();
  void look_at_answer();

  Address target_;
  State state_ = State::kConnecting;
  net::Socket socket_;
  os::Deadline reached_by_ = os::Deadline::never();
};

/// What a signpost that has let us in says; "" if it says nothing.
[[nodiscard]] std::string read_signpost(const Admission& admission, os::Deadline deadline);

/// Only look who is there: kAdmitted means our group.
[[nodiscard]] Probe::Answer peek(const Address& target, os::Deadline deadline);

}  // namespace ddp::bootstrap
