// SPDX-License-Identifier: Apache-2.0
// A member: its endpoint, connected to those of all other members, with the collectives on top. A group may have several
// sets of members (one of all ranks; or one for each local rank, between hosts); each rank makes them in the same order.
//
// Leaving: closing a connection can lose bytes that its peer has not read yet, and the news that a rank left ends the
// waits of all others that wait in shared memory. So a member that ends in good order leaves first: it waits a moment until
// all have the data that they need. Threads: one at a time, except wake(). Tested by unit/exchange/collectives_test.cpp,
// process/gloo_test.cpp, process/hostile_links_test.cpp and process/hierarchy_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exchange/transport.hpp"
#include "socket/collectives.hpp"
#include "socket/connector.hpp"
#include "socket/endpoint.hpp"

namespace ddp::socket {

// A member before it is connected: its endpoint, and where the others reach it. Each member offers itself, gets the offers
// of all in one exchange over the control plane, and becomes a SocketMember. The exchange may carry other things too.
//
// Its listener is open from the beginning, so the others may connect as soon as they have its offer.
// Threads: one.
class MemberOffer {
 public:
  /// `ranks` are the members in order, this rank among them. Throws IO, NOT_SUPPORTED, OUT_OF_MEMORY.
  MemberOffer(const collective::TransportContext& context, const ddp_socket_table& table, const std::string& address,
              const std::vector<int32_t>& ranks);

  /// The message for the other members.
  [[nodiscard]] std::string bytes() const;

  [[nodiscard]] const std::shared_ptr<Endpoint>& endpoint() const noexcept { return endpoint_; }
  /// NULL if the endpoint needs no connections.
  [[nodiscard]] const std::shared_ptr<Connector>& connector() const noexcept { return connector_; }

 private:
  std::shared_ptr<Endpoint> endpoint_;
  std::shared_ptr<Connector> connector_;
};

/// The offer of one member, parsed. Throws INTERNAL for invalid bytes.
struct HeardOffer {
  HeardOffer(const std::string& bytes, bool has_invitation);

  std::string wire;     // the protocol of its links
  std::string address;  // of its endpoint
  Invitation invitation;
};

class SocketMember {
 public:
  /// `offers` is what all ranks of the group have brought, of which those of the members count: `ranks`, in order.
  /// `shares` has what each of them adds. Collective over the members. Throws IO, NOT_SUPPORTED, TIMED_OUT, PEER_FAILED or
  /// the first cause.
  SocketMember(const collective::TransportContext& context, const MemberOffer& mine, const std::vector<std::string>& offers,
               const SocketOptions& options, const std::vector<int32_t>& ranks, Shares shares, int64_t timeout_ms);
  ~SocketMember();
  SocketMember(const SocketMember&) = delete;
  SocketMember& operator=(const SocketMember&) = delete;

  [[nodiscard]] Collectives& collectives() noexcept { return *collectives_; }
  [[nodiscard]] const Shares& shares() const noexcept { return shares_; }
  [[nodiscard]] Schedule schedule(const FlatOwnership& owned, const cpu::ReduceRule& rule, Phases phases) const {
    return make_schedule(shares_, owned, rule, phases, options_);
  }
  [[nodiscard]] Algorithm algorithm_of(const Schedule& schedule, int64_t count, const cpu::ReduceRule& rule,
                                       size_t words) const noexcept {
    return socket::algorithm_of(shares_, schedule, count, rule, words, options_);
  }
  [[nodiscard]] int64_t sent_bytes() const noexcept { return links_.sent_bytes(); }
  [[nodiscard]] collective::Late take_longest_wait() noexcept { return links_.take_longest(); }
  [[nodiscard]] int32_t position() const noexcept { return links_.position(); }
  [[nodiscard]] const char* endpoint_name() const noexcept { return endpoint_->name(); }
  /// In good order: half a second at most, nothing if the group is broken. The last call.
  void leave() noexcept;
  void wake() noexcept { links_.wake(); }

 private:
  void connect(const collective::TransportContext& context, Connector* connector, const std::vector<std::string>& offers,
               const std::vector<int32_t>& ranks);
  [[noreturn]] void explain(const Connected& how, const std::string& place, bootstrap::Control& control, int64_t limit_ms);

  const bootstrap::Failure& failure_;
  const SocketOptions options_;
  const Shares shares_;
  std::shared_ptr<Endpoint> endpoint_;
  Links links_;
  std::unique_ptr<Collectives> collectives_;
};

}  // namespace ddp::socket
