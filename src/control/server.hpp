// SPDX-License-Identifier: Apache-2.0
// Rank 0's thread that all ranks talk to: sockets and time for ServerState.
//
// It listens until the group has formed and then closes the listening socket. Data of unauthenticated peers cannot block it:
// it never waits for a peer. Threads: construct, stop() and destroy from one thread. Tested by process/control_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "control/net.hpp"
#include "control/server_state.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

class Server {
 public:
  /// Takes a listening socket; serves at once.
  Server(net::Socket listener, ServerConfig config);
  /// Stops within half a second if stop() was not called.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Of a recovery: the ids of those who were here at the last tick; any thread.
  [[nodiscard]] std::vector<int32_t> present() const;
  /// The same of those that were seen to have ended, see ServerState::witnessed().
  [[nodiscard]] std::vector<int32_t> witnessed() const;
  /// Of a recovery, see ServerState::form().
  void form(std::vector<int32_t> ids);
  void dismiss(const Error& why);

  /// All pending messages are sent, then all connections end; at the deadline in any case.
  void stop(os::Deadline deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::bootstrap
