// SPDX-License-Identifier: Apache-2.0
// One connection to a place where a rank of our group may serve, from its beginning to that rank's proof, or to a refusal.
// It never waits.
//
// The server sends first, so that a foreign service gets no data: its banner names the group. Then both sides prove that
// they know the token. Only one claim of a peer without proof is believed: that it is not ours. Threads: one. Tested by
// process/impostor_test.cpp and process/rendezvous_test.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/auth.hpp"
#include "control/messages.hpp"
#include "control/net.hpp"
#include "control/tcp_control.hpp"
#include "core/error.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

/// A possible address of rank 0, and the identity that it must show there.
struct Address {
  net::Endpoint where;
  auth::GroupId group{};
  auth::Token token;
};

/// What came of asking at a place.
struct Probe {
  enum class Answer {
    kAdmitted,    // it has proved that it is of our group, and this rank has too
    kNobody,      // nothing listens, or it went away
    kSilent,      // something accepts connections, and does not send in time what a rank sends at once
    kForeign,     // another program
    kOtherGroup,  // libddp, but not our group
    kUnproved,    // it shows our group's banner, and does not prove that it knows the token
    kRefused,     // our group, as it has proved, but it does not take us: `refusal`. Without a token all are believed
  };
  Answer answer = Answer::kNobody;
  std::optional<Admission> admission;
  std::optional<Error> refusal;
  std::string record;   // for the error text when the caller gives up
  int error = 0;        // kNobody: errno of the connection, if there was none
  net::Endpoint where;  // that was asked
};

/// The data that a rank sends at once, after its proof and before it has rank 0's: an impostor that knows the group, but not
/// its token, gets no more than this. Made when there is a connection.
using FirstWords = std::function<std::vector<FirstWord>(const net::Socket&)>;

/// The rank that asks, and the world size that it expects.
struct Caller {
  int32_t rank = 0;
  int32_t size = 0;
};

class Attempt {
 public:
  enum class State { kConnecting, kConnected, kGreeting, kOver };  // connected: nothing was received yet
  enum class Patience {
    kShort,  // for the connection and the first word too, which are then kNobody and kSilent
    kLong    // for both; a peer that has begun to send must continue at once
  };
  Attempt(Address target, const Caller& caller, FirstWords words, Patience patience);

  /// Throws OUT_OF_MEMORY if no connection can be made for want of descriptors or memory.
  State look();
  /// What look() waits for; only while it is not over.
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  [[nodiscard]] short events() const noexcept;
  /// Only when it is over, once.
  [[nodiscard]] Probe take() { return std::move(result_); }

 private:
  void begin();
  void look_whether_connected();
  void look_at_words();
  void hear(const Frame& frame);
  void greet(const messages::Banner& banner);
  void hear_welcome(const Frame& frame);
  void check_time();
  void end(Probe::Answer answer, std::string record);
  void end_refused(const Error& why);

  Address target_;
  Caller caller_;
  FirstWords words_;
  Patience patience_;
  State state_ = State::kConnecting;
  net::Socket socket_;
  FrameReader reader_;
  os::Deadline over_by_ = os::Deadline::never();
  std::optional<auth::Claim> claim_;  // once this rank has proved its own
  Admission admission_;
  Probe result_;
};

}  // namespace ddp::bootstrap
