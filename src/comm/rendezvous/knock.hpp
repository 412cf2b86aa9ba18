// Ask one address whether rank 0 of our group is there, and be let in.
//
// The server speaks first, so that a foreign service is told nothing: its banner says which group it is. Blocking, with a limit
// at every step. Any thread. Tested by process/rendezvous_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/control/auth.hpp"
#include "comm/control/net.hpp"
#include "comm/control/tcp_control.hpp"

namespace ddp {

/// A place where rank 0 may be, and what it must show there.
struct Spot {
  net::Endpoint where;
  auth::GroupId group{};
  auth::Token token;
};

struct Knock {
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
  std::string note;  // for the error text of whoever gives up
};

[[nodiscard]] Knock knock(const Spot& spot, int32_t rank, int32_t size, Deadline deadline);

/// Only look who is there: kAdmitted means our group.
[[nodiscard]] Knock::Answer peek(const Spot& spot, Deadline deadline);

}  // namespace ddp
