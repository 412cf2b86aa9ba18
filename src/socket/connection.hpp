// SPDX-License-Identifier: Apache-2.0
// A connection between two members, and its seal: TLS 1.3 by the functions of the module (socket_abi.h), so that the core
// needs no library for it. An attacker on the way cannot read the bytes of a sealed connection, and bytes that he changes,
// repeats, drops or reorders are an error.
// One thread at a time. Tested by unit/exchange/connector_test.cpp and process/sealed_links_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "control/auth.hpp"
#include "control/net.hpp"
#include "ddp/group.h"
#include "socket/socket_abi.h"

namespace ddp::socket {

namespace auth = bootstrap::auth;
namespace net = bootstrap::net;

/// How the links of a group are made: with the seals of `table`, or plain.
struct Sealing {
  const ddp_socket_table* table = nullptr;
  ddp_links wanted = DDP_LINKS_AUTO;

  /// Are connections to a listener at this numeric address sealed? Both ends ask the same. Those that stay on a host are
  /// not, unless that is wanted, and none without a token: who reads the control plane would read the keys.
  [[nodiscard]] bool seals(std::string_view listener, const auth::Key& group) const noexcept;
};

class Seal {
 public:
  enum class Step { kDone, kReads, kWrites, kFailed };
  enum class End { kConnects, kListens };

  /// Of this connection, which outlives it. Throws OUT_OF_MEMORY, NOT_SUPPORTED.
  Seal(const ddp_socket_table& table, const net::Socket& socket, End end, const auth::Key& key);

  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;
  ~Seal();

  /// Throws OUT_OF_MEMORY.
  [[nodiscard]] Step shake_hands();
  /// As the functions of the table.
  [[nodiscard]] int64_t read(void* data, size_t bytes) noexcept;
  [[nodiscard]] int64_t write(const void* first, size_t first_bytes, const void* second, size_t second_bytes) noexcept;
  [[nodiscard]] const char* trouble() const noexcept { return trouble_; }
  /// For the endpoint that it goes to.
  [[nodiscard]] ddp_socket_seal* release() noexcept { return std::exchange(seal_, nullptr); }

 private:
  const ddp_socket_table& table_;
  ddp_socket_seal* seal_ = nullptr;
  char trouble_[160] = "";
};

struct Connection {
  net::Socket socket;
  std::unique_ptr<Seal> seal{};  // NULL: plain

  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(socket); }
};

}  // namespace ddp::socket
