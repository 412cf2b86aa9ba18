// SPDX-License-Identifier: Apache-2.0
// Makes the connections between the members of a set: each listens, connects to the members before it, and admits those
// after it. It returns connections whose both ends have proved that they belong to the group; no other code has read from
// them or written to them.
//
// Blocks in connect() only. Descriptors: one for each link, the listener, a few for strangers. The listener is closed with
// the connector, so a group that has formed can be reached at no port. Threads: one at a time, except abort().
// Tested by unit/exchange/connector_test.cpp and process/hostile_links_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "os/clock.hpp"
#include "socket/endpoint.hpp"
#include "socket/link_dialer.hpp"
#include "socket/link_listener.hpp"

namespace ddp::socket {

/// The result of connect(), and the members that are not connected.
struct Connected {
  LinkResult result = LinkResult::kDone;  // kTimedOut, kAborted, or kFailed: the other side refuses
  int32_t peer = -1;
  std::string trouble;  // "10.0.0.2:50001 from eth0 (10.0.0.1): Connection refused"; "" if that member was to connect to us
  int error = 0;        // errno of that; 0: no answer
};

class Connector {
 public:
  /// Member `index`, with `lanes` connections to each other member, 1 or more. Throws IO, OUT_OF_MEMORY.
  Connector(int32_t index, int32_t lanes, const std::string& address, const bootstrap::PortRange& ports,
            const auth::Key& group, const Sealing& sealing = {});

  /// For the other members.
  [[nodiscard]] const Invitation& invitation() const noexcept { return listener_.invitation(); }
  /// "10.0.0.1:50000", where the others connect to.
  [[nodiscard]] std::string place() const;

  /// With the invitations of all members, in order; this member's own is not used. Throws OUT_OF_MEMORY.
  [[nodiscard]] Connected connect(const std::vector<Invitation>& members, os::Deadline deadline);
  /// The connections to this member, after kDone. They are the caller's.
  [[nodiscard]] std::vector<Connection> take(int32_t peer);
  /// How many were turned away that were no members.
  [[nodiscard]] int64_t turned_away() const noexcept { return listener_.turned_away(); }

  /// End connect(), now or later. Any thread.
  void abort() noexcept;

 private:
  [[nodiscard]] bool place_link(int32_t peer, int32_t lane, Connection connection);
  void wait(std::vector<pollfd>& polled, os::Deadline deadline);
  [[nodiscard]] Connected unfinished(LinkResult result) const;

  const int32_t index_;
  const int32_t lanes_;
  const auth::Key group_;
  const Sealing sealing_;
  LinkListener listener_;
  net::Socket wake_;
  std::vector<LinkDialer> dialers_;  // links that are still to be made
  std::vector<Connection> links_;    // of member p: lanes_ of them from p * lanes_ on
  int64_t missing_ = 0;
  std::atomic<bool> aborted_{false};
};

}  // namespace ddp::socket
