// Ask one address whether rank 0 of our group is there, and be let in.
//
// The server speaks first, so that a foreign service is told nothing: its banner says which group it is. Blocking, with a
// limit at every step. Any thread.
// Tested by process/rendezvous_test.cpp.
#pragma once

#include <optional>
#include <string>

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
};

[[nodiscard]] Probe probe(const Address& target, int32_t rank, int32_t size, os::Deadline deadline);

/// Only look who is there: kAdmitted means our group.
[[nodiscard]] Probe::Answer peek(const Address& target, os::Deadline deadline);

}  // namespace ddp::bootstrap
