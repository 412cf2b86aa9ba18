// SPDX-License-Identifier: Apache-2.0
// An endpoint over Gloo: a TCP device, pairs over connections that were admitted elsewhere (pairs.hpp), and an unbound
// buffer for each message in progress. Two pairs lead to each peer, one for each direction of the bytes, because Gloo holds
// a pair's lock while it reads: received data would keep us from sending. Nothing else of Gloo is used: its collectives
// cannot be aborted, do not know the rank that they wait for, and add in another order; its rendezvous has no admission.
//
// Threads: one at a time, except abort(). Throws what Gloo throws (std::exception); module.cpp turns it into results.
// Tested by process/gloo_test.cpp.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "socket/socket_abi.h"

namespace ddp::gloo {

class AdmittedPairs;
class Seal;
class Transfer;

class Endpoint {
 public:
  /// TCP connections to each peer.
  static constexpr int32_t kLanes = 2;

  Endpoint(int32_t index, int32_t size);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Takes the descriptors, also when it throws. A seal may be NULL.
  [[nodiscard]] ddp_socket_result attach(int32_t peer, const int32_t (&descriptors)[kLanes],
                                         std::unique_ptr<Seal> (&seals)[kLanes]);
  [[nodiscard]] ddp_socket_result post_send(int32_t peer, uint64_t slot, const void* data, size_t bytes, int64_t& ticket);
  [[nodiscard]] ddp_socket_result post_receive(int32_t peer, uint64_t slot, void* data, size_t bytes, int64_t& ticket);
  [[nodiscard]] ddp_socket_result wait(int64_t ticket, std::chrono::milliseconds timeout);
  [[nodiscard]] uint64_t moved() noexcept;
  [[nodiscard]] int64_t gaps() noexcept;
  /// The peer from which other bytes came than it has sent, and how that is known; -1: none.
  [[nodiscard]] std::pair<int32_t, const char*> changed() noexcept;
  void abort() noexcept;
  void close();

 private:
  template <class Fn>
  void each_open(const Fn& fn) noexcept;
  struct Message {
    std::unique_ptr<Transfer> buffer;
    bool is_send = false;
  };
  void make_room();
  int64_t keep(std::unique_ptr<Transfer> buffer, bool is_send) noexcept;
  [[nodiscard]] bool is_aborted();
  /// The context whose pairs carry bytes towards larger indices, or the one for smaller.
  [[nodiscard]] const std::shared_ptr<AdmittedPairs>& context(bool towards_larger) const noexcept {
    return contexts_[towards_larger ? 1 : 0];
  }

  int32_t index_;
  std::shared_ptr<AdmittedPairs> contexts_[kLanes];
  std::vector<int32_t> peers_;     // that have been attached
  std::vector<Message> messages_;  // ticket - 1
  std::vector<int64_t> unused_;    // tickets
  bool closed_ = false;

  std::mutex mutex_;  // guards what follows; held for moments only
  bool aborted_ = false;
  const Message* waiting_ = nullptr;
};

}  // namespace ddp::gloo
