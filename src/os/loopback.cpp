// SPDX-License-Identifier: Apache-2.0
#include "os/loopback.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace ddp::os {
namespace {

/// Unless the system says so, it has IPv4: descriptors may have run out.
bool has_no_ipv4() noexcept {
  const int probe = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return errno == EAFNOSUPPORT;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool fails = ::bind(probe, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 && errno == EADDRNOTAVAIL;
  ::close(probe);
  return fails;
}

}  // namespace

std::string loopback() { return has_no_ipv4() ? "::1" : "127.0.0.1"; }

}  // namespace ddp::os
