// SPDX-License-Identifier: Apache-2.0
// Where the other members connect to this one: turns connections into admitted ones, and strangers away. A proof is taken
// once, so who repeats one that it has seen is a stranger. Where links are sealed, a connection with a proof is admitted
// when its seal is made; only bytes of connections with a proof go to the code of the
// seal.
//
// A connection that has not proved who it is costs a descriptor and some 150 bytes. It has 5 s; at most 64 wait at a time
// (fewer where the process may have few descriptors), then one of them goes, whichever chance picks: in a flood of strangers
// an honest connection, which needs one round trip, mostly stays, and comes again if not. Without descriptors strangers go
// first, and nothing is accepted for a moment. Non-blocking; the owner polls. One thread. Tested by
// unit/exchange/connector_test.cpp and process/hostile_links_test.cpp.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "control/port_range.hpp"
#include "socket/connection.hpp"
#include "socket/handshake.hpp"

namespace ddp::socket {

class LinkListener {
 public:
  /// Listens at once on this numeric address. `group` is the secret of the group. Throws IO, OUT_OF_MEMORY.
  LinkListener(const std::string& address, const bootstrap::PortRange& ports, const auth::Key& group,
               const Sealing& sealing = {});

  [[nodiscard]] const Invitation& invitation() const noexcept { return invitation_; }
  /// Of how many watch() adds the descriptor, besides its own.
  [[nodiscard]] size_t waiting() const noexcept { return pending_.size() + sealing_.size(); }
  /// How many were no members.
  [[nodiscard]] int64_t turned_away() const noexcept { return turned_away_; }

  /// Add what is to be polled.
  void watch(std::vector<pollfd>& polled);
  /// Continue with the result of poll(), from where watch() began to add. `admit` gets connections that proved their link;
  /// it returns false for a link that is not expected. Throws OUT_OF_MEMORY when this process has had no descriptor for a
  /// connection for some seconds: then nobody can connect.
  using Admit = std::function<bool(LinkName, Connection)>;
  void serve(const pollfd* polled, const Admit& admit);

 private:
  struct Pending {
    net::Socket socket;
    int64_t until_ns = 0;
    size_t filled = 0;
    std::array<char, kHelloBytes> bytes{};
  };
  struct Sealed {
    LinkName link;
    Connection connection;
    short awaits = POLLIN;
  };
  enum class Step { kWait, kDrop, kAdmitted };

  void accept_some();
  void pause(int error);
  void add(net::Socket socket);
  [[nodiscard]] Step read(Pending& pending, const Admit& admit);
  [[nodiscard]] Step seal(Sealed& one, const Admit& admit);
  [[nodiscard]] bool is_new(const auth::Nonce& client);
  void drop(size_t at);
  void drop_one();

  net::Socket listener_;
  Invitation invitation_;
  auth::Token token_;
  const ddp_socket_table* table_;  // of the seals; NULL: links stay plain
  size_t most_pending_;
  std::vector<Pending> pending_;
  std::vector<Sealed> sealing_;      // have a proof, so a few for each link
  std::vector<auth::Nonce> proved_;  // of members alone, so a few for each link
  int64_t turned_away_ = 0;
  int64_t paused_until_ns_ = 0;  // there are no descriptors
  int64_t without_since_ns_ = 0;
};

/// No delay, and a probe now and then, so that nothing between the hosts forgets an idle connection.
void tune_link(int fd) noexcept;

}  // namespace ddp::socket
