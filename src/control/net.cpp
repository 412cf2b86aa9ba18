// SPDX-License-Identifier: Apache-2.0
#include "control/net.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "control/interfaces.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap::net {
namespace {

Endpoint endpoint(const sockaddr* address, socklen_t length) {
  Endpoint out;
  std::memcpy(&out.address, address, std::min<size_t>(length, sizeof out.address));
  out.length = length;
  return out;
}

Socket open_socket(int family) { return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// The address from which a packet to the outside would leave; nothing is sent.
bool default_route(int family, const sockaddr* far, socklen_t length, Endpoint& out) {
  const Socket probe(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || ::connect(probe.get(), far, length) != 0) return false;
  out = local_end(probe).with_port(0);
  return !out.is_loopback();
}

}  // namespace

void Socket::reset() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

int32_t Endpoint::port() const noexcept {
  return address.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port)
                                       : ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Endpoint Endpoint::with_port(int32_t port) const noexcept {
  Endpoint out = *this;
  const auto number = htons(static_cast<uint16_t>(port));
  if (address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(out.address).sin6_port = number;
  else
    reinterpret_cast<sockaddr_in&>(out.address).sin_port = number;
  return out;
}

bool Endpoint::is_loopback() const noexcept {
  if (address.ss_family == AF_INET) return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

std::string Endpoint::host() const {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string Endpoint::text() const {
  const std::string numeric = host();
  return (numeric.find(':') != std::string::npos ? "[" + numeric + "]" : numeric) + ":" + std::to_string(port());
}

std::pair<std::string, int32_t> split_place(const std::string& place) {
  const size_t colon = place.rfind(':');
  std::string host = place.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, static_cast<int32_t>(std::stol(place.substr(colon + 1)))};
}

Endpoint own_address(const char* interface_name) {
  if (interface_name != nullptr && *interface_name != '\0')
    return choose_interface(interface_name, interfaces_here(), Family::kAny);
  Endpoint found;
  sockaddr_in far4{};
  far4.sin_family = AF_INET;
  far4.sin_port = htons(9);
  far4.sin_addr.s_addr = htonl(0xc6336401);  // 198.51.100.1, a documentation address
  if (default_route(AF_INET, reinterpret_cast<const sockaddr*>(&far4), sizeof far4, found)) return found;
  sockaddr_in6 far6{};
  far6.sin6_family = AF_INET6;
  far6.sin6_port = htons(9);
  ::inet_pton(AF_INET6, "2001:db8::1", &far6.sin6_addr);
  if (default_route(AF_INET6, reinterpret_cast<const sockaddr*>(&far6), sizeof far6, found)) return found;
  far4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  far4.sin_port = 0;
  return endpoint(reinterpret_cast<const sockaddr*>(&far4), sizeof far4);
}

Socket listen_at(const Endpoint& where, int& error) {
  Socket socket = open_socket(where.address.ss_family);
  const int on = 1;
  // Connections of an earlier group on this port may still be there; two listeners stay impossible.
  const bool listens = socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&where.address), where.length) == 0 &&
                       ::listen(socket.get(), SOMAXCONN) == 0;
  error = listens ? 0 : errno;
  return listens ? std::move(socket) : Socket();
}

Socket begin_connect(const Endpoint& where, int& error) {
  Socket socket = open_socket(where.address.ss_family);
  error = 0;
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&where.address), where.length) != 0)
    error = errno;
  if (error == EINPROGRESS || error == EINTR) error = 0;
  return error == 0 ? std::move(socket) : Socket();
}

int connect_error(const Socket& socket, const Endpoint& where) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return error;
  // A port without a listener can, on one host, connect to itself.
  const Endpoint mine = local_end(socket);
  return mine.port() == where.port() && mine.host() == where.host() ? ECONNREFUSED : 0;
}

Socket connect_to(const Endpoint& where, os::Deadline deadline, int& error) {
  Socket socket = begin_connect(where, error);
  if (error == 0) error = wait_for(socket, POLLOUT, deadline) ? connect_error(socket, where) : ETIMEDOUT;
  return error == 0 ? std::move(socket) : Socket();
}

Endpoint local_end(const Socket& socket) {
  Endpoint out;
  out.length = sizeof out.address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&out.address), &out.length) != 0)
    throw make_error(DDP_ERROR_INTERNAL, "a socket does not know its address: %s", std::strerror(errno));
  return out;
}

void tune(int fd, int64_t dead_after_ms) noexcept {
  const int on = 1;
  const auto limit = static_cast<unsigned int>(std::clamp<int64_t>(dead_after_ms, 1'000, 3'600'000));
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

size_t unauthenticated_limit(size_t wanted) noexcept {
  constexpr size_t kLeast = 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  return std::min(wanted, std::max<size_t>(limit.rlim_cur / 4, kLeast));
}

bool is_exhausted(int error) noexcept { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

bool wait_for(const Socket& socket, short events, os::Deadline deadline) {
  pollfd watched{socket.get(), events, 0};
  for (;;) {
    const int64_t left_ms = std::min<int64_t>(deadline.left_ms(), 1'000'000);
    const int ready = ::poll(&watched, 1, static_cast<int>(left_ms));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw make_error(DDP_ERROR_INTERNAL, "poll failed: %s", std::strerror(errno));
    if (deadline.passed()) return false;
  }
}

}  // namespace ddp::bootstrap::net
