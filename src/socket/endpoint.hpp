// SPDX-License-Identifier: Apache-2.0
// One member's end of the links, as an owned object: messages to other members, tickets to wait for. The bytes are sent
// through a table of C functions (socket_abi.h): Gloo between processes, queues between the threads of a test. A result
// other than kDone and kTimedOut ends the endpoint; error() has the reason. Only abort() may come from another thread.
// Tested by unit/exchange/socket_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "socket/connection.hpp"
#include "socket/socket_abi.h"

namespace ddp::socket {

enum class LinkResult { kDone, kTimedOut, kFailed, kAborted, kExhausted };

class Endpoint {
 public:
  /// `set` is what the endpoints of one set have in common. Throws NOT_SUPPORTED for a table of another version, IO,
  /// OUT_OF_MEMORY.
  Endpoint(const ddp_socket_table& table, int32_t index, int32_t size, const std::string& set, bool one_host);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  [[nodiscard]] const char* name() const noexcept { return table_.name; }
  [[nodiscard]] int32_t index() const noexcept { return index_; }
  [[nodiscard]] int32_t size() const noexcept { return size_; }

  /// The number of connections of a link, and their protocol.
  [[nodiscard]] int32_t lanes() const noexcept { return table_.lanes; }
  [[nodiscard]] const char* wire() const noexcept { return table_.wire; }
  /// Bytes in addition to a message, of its sender and of its receiver each.
  [[nodiscard]] int64_t frame_bytes() const noexcept { return table_.frame_bytes; }
  /// The message for the other members, if any.
  [[nodiscard]] std::string address() const;
  /// Make the link to `peer` of these connections, which are the endpoint's from here on, and its address.
  [[nodiscard]] LinkResult attach(int32_t peer, std::vector<Connection> connections, const std::string& address);

  using Ticket = int64_t;
  [[nodiscard]] LinkResult send(int32_t peer, uint64_t slot, const void* data, int64_t bytes, Ticket& ticket) noexcept;
  [[nodiscard]] LinkResult receive(int32_t peer, uint64_t slot, void* data, int64_t bytes, Ticket& ticket) noexcept;
  /// After kTimedOut it may be made again.
  [[nodiscard]] LinkResult wait(Ticket ticket, int64_t timeout_ms) noexcept;
  /// A number that changes while bytes are received or sent on any link, also within a message.
  [[nodiscard]] uint64_t moved() noexcept;
  /// Packets that arrived behind a gap; 0 where it is not known.
  [[nodiscard]] int64_t gaps() noexcept;

  /// End waits, now and later. Any thread.
  void abort() noexcept;
  /// When it returns, no posted memory is touched any more.
  void close() noexcept;
  /// The peer from which other bytes came than it has sent; error() has how that is known. -1: none.
  [[nodiscard]] int32_t changed() noexcept;
  /// Why the last call did not give kDone.
  [[nodiscard]] const char* error() const noexcept { return error_; }

 private:
  const ddp_socket_table& table_;
  ddp_socket_endpoint* endpoint_ = nullptr;
  int32_t index_;
  int32_t size_;
  char error_[512] = "";
};

}  // namespace ddp::socket
