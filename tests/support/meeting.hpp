// SPDX-License-Identifier: Apache-2.0
// Options and places for tests of the control plane.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "control/control.hpp"
#include "discovery/rendezvous.hpp"

namespace ddp::test {

/// A TCP socket on 127.0.0.1; `listens` with a port of the kernel's choice.
class LoopbackSocket {
 public:
  LoopbackSocket() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~LoopbackSocket() { close(); }
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;

  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool bind(int port) {
    sockaddr_in address = at(port);
    return ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool listen(int port) { return bind(port) && ::listen(fd_, 64) == 0; }
  bool connect(int port) {
    sockaddr_in address = at(port);
    return ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  int port() const {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
  }

 private:
  static sockaddr_in at(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  int fd_;
};

/// A port that was free a moment ago.
inline int free_port() {
  LoopbackSocket socket;
  socket.bind(0);
  return socket.port();
}

inline std::string tcp_place(int port) { return "tcp://127.0.0.1:" + std::to_string(port); }

/// Short clocks, but patient enough for a busy machine.
inline ddp_group_options quick_options(int rank, int size) {
  ddp_group_options options{};
  options.struct_size = sizeof options;
  options.rank = rank;
  options.world_size = size;
  options.device_index = -1;
  options.timeout_ms = 20'000;
  options.heartbeat_ms = 100;
  options.dead_after_ms = 10'000;
  options.rendezvous_timeout_ms = 20'000;
  return options;
}

inline std::unique_ptr<bootstrap::Control> meet_at(const std::string& place, const ddp_group_options& options) {
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  return bootstrap::meet(bootstrap::resolve_meeting(place.c_str(), options, nothing), options);
}

inline std::unique_ptr<bootstrap::Control> meet_at(const std::string& place, int rank, int size) {
  return meet_at(place, quick_options(rank, size));
}

/// Waits for the failure of a group.
class FailureWatch {
 public:
  explicit FailureWatch(bootstrap::Control& control) : state_(std::make_shared<State>()) {
    control.on_failure([state = state_](const Error& cause) {  // may still run after this object's end
      const std::lock_guard lock(state->mutex);
      state->cause = cause;
      state->changed.notify_all();
    });
  }
  /// Throws what broke the group; returns if nothing did.
  void wait(int64_t limit_ms = 15'000) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return state_->cause.has_value(); });
    if (state_->cause.has_value()) throw Error(*state_->cause);
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Error> cause;
  };
  std::shared_ptr<State> state_;
};

inline double seconds_now() { return static_cast<double>(os::now_ns()) * 1e-9; }

}  // namespace ddp::test
