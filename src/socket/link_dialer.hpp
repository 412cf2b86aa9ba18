// SPDX-License-Identifier: Apache-2.0
// One link that this member makes to another one: connect, prove our identity, receive the proof of the other side, or seal
// the connection, which proves it too. Failed steps are retried, with a growing delay, until the owner gives up.
// Non-blocking; the owner polls. One thread. Tested by unit/exchange/connector_test.cpp and process/hostile_links_test.cpp.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "socket/connection.hpp"
#include "socket/handshake.hpp"

namespace ddp::socket {

inline constexpr int64_t kLongestWaitMs = 1'000;
inline constexpr int64_t kRefusedMs = 5'000;  // a listener that is there does not refuse for so long

class LinkDialer {
 public:
  /// To the listener of the member `peer`, as the link `link`.
  LinkDialer(int32_t peer, LinkName link, const Invitation& there, const auth::Key& group, const Sealing& sealing = {});

  [[nodiscard]] int32_t peer() const noexcept { return peer_; }
  [[nodiscard]] int32_t lane() const noexcept { return link_.lane; }

  /// The descriptor to poll; -1 while it only waits for a time.
  [[nodiscard]] pollfd watched() const noexcept;
  /// The latest time of the next serve(), whatever poll() returns.
  [[nodiscard]] int64_t due_ns() const noexcept { return due_ns_; }
  /// Continue. Returns the connection when it is a link, else empty. Throws OUT_OF_MEMORY when this process has no
  /// descriptors.
  [[nodiscard]] Connection serve(short revents);

  /// How long the other side has answered nothing but "no" (refused, unreachable).
  [[nodiscard]] int64_t refused_ms() const noexcept;
  /// "10.0.0.2:50001 from eth0 (10.0.0.1): Connection refused"
  [[nodiscard]] std::string trouble() const;
  /// errno of the last attempt; 0: it has not failed yet.
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  enum class Phase { kPause, kConnecting, kWelcome, kSealing };
  void dial();
  void connected();
  void greet();
  void fail(int error);
  [[nodiscard]] bool seal();
  /// False until the welcome is there; ends the attempt if it never will be.
  [[nodiscard]] bool read_welcome();

  int32_t peer_;
  LinkName link_;
  net::Endpoint where_;
  auth::Token token_;
  const ddp_socket_table* table_;  // of its seal; NULL: the link stays plain
  Phase phase_ = Phase::kPause;
  Connection connection_;
  short awaits_ = 0;
  int64_t due_ns_ = 0;
  int64_t pause_ms_;
  int64_t refused_since_ns_ = 0;
  int error_ = 0;  // of the last attempt
  size_t filled_ = 0;
  std::array<char, kWelcomeBytes> bytes_{};
  auth::Nonce client_{};
};

}  // namespace ddp::socket
