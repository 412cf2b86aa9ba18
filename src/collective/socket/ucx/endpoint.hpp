// SPDX-License-Identifier: Apache-2.0
// An endpoint over UCX: a worker, an endpoint of UCX to each peer, and a tagged message for each message.
//
// A tag is 64 random bits of the receiver, told over the control plane, xor the sender and the slot: who does not know them
// cannot send a message that a receive takes. README.md says what that does not protect.
//
// Threads: one at a time, but for abort(). Throws UcxError and std::exception; module.cpp turns them into results.
// Tested by process/ucx_test.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collective/socket/socket_abi.h"
#include "collective/socket/ucx/engine.hpp"

namespace ddp::ucx {

class Endpoint {
 public:
  Endpoint(int32_t index, int32_t size, bool one_host);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// The random bits, then the worker's address.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] ddp_socket_result attach(int32_t peer, std::string_view address);
  [[nodiscard]] ddp_socket_result post_send(int32_t peer, uint64_t slot, const void* data, size_t bytes, int64_t& ticket);
  [[nodiscard]] ddp_socket_result post_receive(int32_t peer, uint64_t slot, void* data, size_t bytes, int64_t& ticket);
  [[nodiscard]] ddp_socket_result wait(int64_t ticket, std::chrono::milliseconds timeout);
  [[nodiscard]] uint64_t moved();
  void abort() noexcept { engine_.abort(); }
  void close() noexcept;

 private:
  struct Peer {
    ucp_ep_h link = nullptr;
    uint64_t secret = 0;
    ucs_status_t broken = UCS_OK;
  };
  struct Message {
    void* request = nullptr;  // while it is under way
    int32_t peer = -1;        // -1: the ticket is unused
    ucs_status_t status = UCS_OK;
  };
  static void on_broken(void* peer, ucp_ep_h link, ucs_status_t status) noexcept;
  static void on_sent(void* request, ucs_status_t status, void* message) noexcept;
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* message) noexcept;
  [[nodiscard]] Peer& usable(int32_t peer, size_t bytes);
  [[nodiscard]] int64_t take_ticket();
  [[nodiscard]] Message& message(int64_t ticket) noexcept { return *messages_[static_cast<size_t>(ticket - 1)]; }
  [[nodiscard]] ddp_socket_result posted(int64_t ticket, int32_t peer, ucs_status_ptr_t request, int64_t& out);
  void close_links(std::unique_lock<std::mutex>& lock) noexcept;

  const int32_t index_;
  const uint64_t secret_;
  Engine engine_;
  bool closed_ = false;
  std::string address_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Message>> messages_;  // ticket - 1; UCX points at them
  std::vector<int64_t> unused_;                     // tickets
  std::vector<ucs_status_ptr_t> ending_;            // what close() waits for
};

}  // namespace ddp::ucx
