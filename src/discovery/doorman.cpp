// SPDX-License-Identifier: Apache-2.0
#include "discovery/doorman.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/error.hpp"
#include "os/thread.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int kLookMs = 50;  // while connections wait

net::Socket make_wake() {
  net::Socket made(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "a rank cannot watch its own port: %s%s", std::strerror(errno),
                     advice_of_errno(errno));
  return made;
}

/// Of a listening socket the kernel gives the length of its queue, and the most.
bool is_half_full(const net::Socket& listener) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(listener.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_unacked >= info.tcpi_sacked / 2;
}

}  // namespace

Doorman::Doorman(const net::Socket& listener) : listener_(listener), wake_(make_wake()) {
  thread_ = os::start_thread("ddp-standby", [this] { run(); });
}

Doorman::~Doorman() {
  const uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void Doorman::run() const noexcept {
  pollfd watched[2] = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (bool waiting = false;;) {
    // What waits keeps the listener readable: it is looked at now and then.
    const int ready = ::poll(watched, waiting ? 1 : 2, waiting ? kLookMs : -1);
    if (ready < 0 && errno != EINTR) return;
    if (ready > 0 && watched[0].revents != 0) return;
    if (waiting && is_half_full(listener_)) drop_all();
    waiting = !waiting && ready > 0;
  }
}

void Doorman::drop_all() const noexcept {
  for (;;) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
      ::close(fd);
    else if (errno != EINTR && errno != ECONNABORTED)
      return;  // none is left, or there is no descriptor now
  }
}

}  // namespace ddp::bootstrap
