// SPDX-License-Identifier: Apache-2.0
// Addresses and sockets for the control plane: resolve within a time limit, listen, connect, ask where a socket ends.
//
// Every descriptor is close-on-exec and non-blocking from its first moment on. Any thread.
// Tested by process/control_test.cpp and process/rendezvous_test.cpp.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "os/clock.hpp"

namespace ddp::bootstrap::net {

/// Owns a socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  ~Socket() { reset(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

/// A numeric address, IPv4 or IPv6, with a port.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;

  [[nodiscard]] int32_t port() const noexcept;
  [[nodiscard]] Endpoint with_port(int32_t port) const noexcept;
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] std::string host() const;  // "10.0.0.1", "::1"
  [[nodiscard]] std::string text() const;  // "10.0.0.1:29500", "[::1]:29500"
};

/// "host:port" and "[host]:port" into host and port; the text was checked before.
[[nodiscard]] std::pair<std::string, int32_t> split_place(const std::string& place);

/// All addresses of a host name; numeric ones at once. Tries again until the deadline. Throws IO naming the host.
[[nodiscard]] std::vector<Endpoint> resolve(const std::string& host, os::Deadline deadline);

/// The address in this process's reach by which others are most likely to find this host: that of DDP_SOCKET_IFNAME, else of
/// the default route, else the loopback. Throws INVALID_ARGUMENT if it
/// fits none (interfaces.hpp).
[[nodiscard]] Endpoint own_address(const char* interface_name);

/// Listen on exactly this address and port (0: any). An empty socket and `error` set to errno if that is not possible.
[[nodiscard]] Socket listen_at(const Endpoint& where, int& error);

/// Begin to connect; it is decided when the socket can be written to. An empty socket and `error` set to errno if it failed
/// at once.
[[nodiscard]] Socket begin_connect(const Endpoint& where, int& error);
/// 0, or why the connection that was begun failed. ECONNREFUSED too if the socket is connected to itself.
[[nodiscard]] int connect_error(const Socket& socket, const Endpoint& where);

/// An empty socket and `error` set to errno without an answer in time.
[[nodiscard]] Socket connect_to(const Endpoint& where, os::Deadline deadline, int& error);

[[nodiscard]] Endpoint local_end(const Socket& socket);

/// No delay for small frames; the kernel gives up a connection on which nothing is acknowledged for `dead_after_ms`.
void tune(int fd, int64_t dead_after_ms) noexcept;

/// The number of connections that may wait unauthenticated: `wanted`, or a quarter of the descriptors that this process may
/// have if that is less (16 at least), so that strangers leave it enough.
[[nodiscard]] size_t unauthenticated_limit(size_t wanted) noexcept;

/// This process, or the system, has no descriptors or memory for another socket.
[[nodiscard]] bool is_exhausted(int error) noexcept;

/// Wait for `events` of poll(); false when the deadline has passed.
[[nodiscard]] bool wait_for(const Socket& socket, short events, os::Deadline deadline);

}  // namespace ddp::bootstrap::net
