// One endpoint of an endpoint over Gloo: a TCP device on a numeric address, contexts of our own with pairs to those peers
// only that are asked for, and an unbound buffer for each message under way. Two pairs lead to each peer, one for each
// direction of the bytes, because Gloo holds a pair's lock while it reads: what streams in would keep us from sending out.
// Nothing else of Gloo is used: its collectives cannot be aborted, do not know whom they wait for, and add in another order;
// its rendezvous connects everybody with everybody.
//
// Only the part of Gloo's interface that never changed between the releases in Debian 12, 13 and sid is called.
// Threads: one at a time, but for abort(). Throws what Gloo throws (std::exception); module.cpp turns it into results.
// Tested by process/gloo_test.cpp.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collective/socket/socket_abi.h"

namespace gloo::transport {
class Pair;
class UnboundBuffer;
}  // namespace gloo::transport

namespace ddp::gloo {

class PeersContext;

class Endpoint {
 public:
  Endpoint(int32_t index, int32_t size, const std::string& address, std::chrono::milliseconds connect_timeout);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  [[nodiscard]] std::vector<char> address_for(int32_t peer);
  [[nodiscard]] ddp_socket_result connect(int32_t peer, const std::vector<char>& address);
  [[nodiscard]] ddp_socket_result post_send(int32_t peer, uint64_t slot, const void* data, size_t bytes, int64_t& ticket);
  [[nodiscard]] ddp_socket_result post_receive(int32_t peer, uint64_t slot, void* data, size_t bytes, int64_t& ticket);
  [[nodiscard]] ddp_socket_result wait(int64_t ticket, std::chrono::milliseconds timeout);
  void abort() noexcept;
  void close();

 private:
  struct Message {
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
    bool is_send = false;
  };
  void make_room();
  int64_t keep(std::unique_ptr<::gloo::transport::UnboundBuffer> buffer, bool is_send) noexcept;
  [[nodiscard]] bool is_aborted();
  /// The context whose pairs carry bytes towards larger indices, or the one for smaller.
  [[nodiscard]] PeersContext& context(bool towards_larger) const noexcept { return *contexts_[towards_larger ? 1 : 0]; }
  [[nodiscard]] ddp_socket_result connect_one(PeersContext& context, int32_t peer, const std::vector<char>& address);

  int32_t index_;
  std::unique_ptr<PeersContext> contexts_[2];
  std::vector<int32_t> peers_;     // pairs that exist
  std::vector<Message> messages_;  // ticket - 1
  std::vector<int64_t> unused_;    // tickets
  bool closed_ = false;

  std::mutex mutex_;  // guards what follows; held for moments only
  bool aborted_ = false;
  const Message* waiting_ = nullptr;
  ::gloo::transport::Pair* connecting_ = nullptr;
};

}  // namespace ddp::gloo
