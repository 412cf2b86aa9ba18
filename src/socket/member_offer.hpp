// SPDX-License-Identifier: Apache-2.0
// A member before it is connected: its endpoint, and where the others reach it. Each member offers itself, gets the offers
// of all in one exchange over the control plane, and becomes a SocketMember. The exchange may carry other things too.
//
// Its listener is open from the beginning, so the others may connect as soon as they have its offer.
// Threads: one.
// Tested by process/gloo_test.cpp and process/hierarchy_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exchange/transport.hpp"
#include "socket/connector.hpp"
#include "socket/endpoint.hpp"

namespace ddp::socket {

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

}  // namespace ddp::socket
