// One member's end of the links, as an owned object: messages to other members, tickets to wait for. What carries the bytes
// is a table of C functions (socket_abi.h): Gloo between processes, queues between the threads of a test.
// A result other than kDone ends the endpoint; error() says why. Only abort() may come from another thread.
// Tested by unit/collective/socket_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collective/socket/socket_abi.h"

namespace ddp::socket {

enum class LinkResult { kDone, kTimedOut, kFailed, kAborted, kExhausted };

class Endpoint {
 public:
  /// Throws NOT_SUPPORTED for a table of another version, IO when the address cannot be used.
  Endpoint(const ddp_socket_table& table, int32_t index, int32_t size, const std::string& address,
           int64_t connect_timeout_ms);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  [[nodiscard]] const char* name() const noexcept { return table_.name; }
  [[nodiscard]] int32_t index() const noexcept { return index_; }
  [[nodiscard]] int32_t size() const noexcept { return size_; }

  /// The bytes that `peer` needs to connect to us. Throws IO.
  [[nodiscard]] std::string address_for(int32_t peer);
  [[nodiscard]] LinkResult connect(int32_t peer, std::string_view address) noexcept;

  using Ticket = int64_t;
  [[nodiscard]] LinkResult send(int32_t peer, uint64_t slot, const void* data, int64_t bytes, Ticket& ticket) noexcept;
  [[nodiscard]] LinkResult receive(int32_t peer, uint64_t slot, void* data, int64_t bytes, Ticket& ticket) noexcept;
  [[nodiscard]] LinkResult wait(Ticket ticket, int64_t timeout_ms) noexcept;

  /// End waits, now and later. Any thread.
  void abort() noexcept;
  /// When it returns, no posted memory is touched any more.
  void close() noexcept;
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
