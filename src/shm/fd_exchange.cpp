// SPDX-License-Identifier: Apache-2.0
#include "shm/fd_exchange.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/attempt.hpp"

namespace ddp::shm {
namespace {

constexpr size_t kNameBytes = 32;    // hexadecimal
constexpr size_t kSecretBytes = 32;  // hexadecimal

struct Hello {
  char secret[kSecretBytes];
  int32_t rank;
};

std::string random_hex(size_t digits) {
  std::string raw(digits / 2, '\0');
  size_t got = 0;
  while (got < raw.size()) {
    const ssize_t n = getrandom(raw.data() + got, raw.size() - got, 0);
    if (n < 0 && errno != EINTR) throw make_error(DDP_ERROR_INTERNAL, "getrandom failed (%s)", std::strerror(errno));
    if (n > 0) got += static_cast<size_t>(n);
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : raw) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

sockaddr_un abstract_address(const std::string& name, socklen_t* length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "libddp-" + name;
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return address;
}

Error no_socket(int error) {
  return make_error(status_of_errno(error, DDP_ERROR_NOT_SUPPORTED), "no UNIX socket could be made (%s)%s",
                    std::strerror(error), advice_of_errno(error));
}

Fd make_socket() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) throw no_socket(errno);
  return Fd(fd);
}

constexpr int64_t kLookMs = 50;

void wait_for(int fd, short events, const Patience& patience, const char* what) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int n = poll(&entry, 1, static_cast<int>(std::min(patience.deadline.left_ms(), kLookMs)));
    if (n > 0) return;
    if (n < 0 && errno != EINTR) throw make_error(DDP_ERROR_INTERNAL, "poll failed (%s)", std::strerror(errno));
    if (patience.check) patience.check();
    if (patience.deadline.passed()) throw make_error(DDP_ERROR_TIMED_OUT, "%s took too long", what);
  }
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

Fd connect_to(const std::string& name, int32_t rank) {
  Fd fd = make_socket();
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(name, &length);
  int result = 0;
  do {
    result = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length);
  } while (result != 0 && errno == EINTR);
  if (result != 0)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "rank %d is on this host but its UNIX socket cannot be reached (%s); is it in another container?", rank,
                     std::strerror(errno));
  if (!same_user(fd.get())) throw make_error(DDP_ERROR_NOT_SUPPORTED, "rank %d runs under another user id", rank);
  return fd;
}

void send_fd(int socket_fd, int fd, const Patience& patience) {
  char byte = 'f';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  while (sendmsg(socket_fd, &message, MSG_NOSIGNAL) != 1) {
    if (errno != EINTR && errno != EAGAIN)
      throw make_error(DDP_ERROR_NOT_SUPPORTED, "a memory descriptor could not be passed (%s)", std::strerror(errno));
    wait_for(socket_fd, POLLOUT, patience, "passing shared memory to a rank");
  }
}

Error closed_early(int32_t rank) {
  return make_error(DDP_ERROR_NOT_SUPPORTED, "rank %d closed its UNIX socket without passing its memory", rank);
}

Fd receive_fd(int socket_fd, int32_t rank, const Patience& patience) {
  for (;;) {
    wait_for(socket_fd, POLLIN, patience, "receiving another rank's shared memory");
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    const cmsghdr* header = n == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int)))
      throw closed_early(rank);
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return Fd(fd);
  }
}

/// The rank that sends the right secret; -1 for any other peer.
int32_t read_hello(int fd, const std::string& secret, size_t ranks, const Patience& patience) {
  Hello hello{};
  size_t got = 0;
  while (got < sizeof hello) {
    wait_for(fd, POLLIN, patience, "a rank's hello on a UNIX socket");
    const ssize_t n = recv(fd, reinterpret_cast<char*>(&hello) + got, sizeof hello - got, 0);
    if (n == 0) return -1;
    if (n < 0 && errno != EINTR && errno != EAGAIN) return -1;
    if (n > 0) got += static_cast<size_t>(n);
  }
  unsigned char difference = 0;  // no early exit: the time tells nothing about the secret
  for (size_t i = 0; i < kSecretBytes; ++i) difference |= static_cast<unsigned char>(hello.secret[i] ^ secret[i]);
  return difference == 0 && hello.rank >= 0 && static_cast<size_t>(hello.rank) < ranks ? hello.rank : -1;
}

/// Has this peer ended its side without passing its memory? What it has passed stays readable.
bool has_given_up(int link) {
  char byte = 0;
  const ssize_t n = recv(link, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

/// Until a rank knocks at the listener. `watched`: links to the ranks that have not; one that has been passed something is
/// watched no longer, and one that is closed ends the wait, because that rank has failed in its own part.
void wait_for_hello(int listener, std::vector<int>& watched, const Patience& patience) {
  std::vector<pollfd> entries;
  for (;;) {
    entries.assign(1, pollfd{listener, POLLIN, 0});
    for (const int link : watched) entries.push_back(pollfd{link, 0, 0});  // an end is always reported
    const int n = poll(entries.data(), entries.size(), static_cast<int>(std::min(patience.deadline.left_ms(), kLookMs)));
    if (n < 0 && errno != EINTR) throw make_error(DDP_ERROR_INTERNAL, "poll failed (%s)", std::strerror(errno));
    if (n > 0 && entries.front().revents != 0) return;
    for (size_t peer = 0; n > 0 && peer < watched.size(); ++peer) {
      if (entries[peer + 1].revents == 0) continue;
      if (has_given_up(watched[peer])) throw closed_early(static_cast<int32_t>(peer));
      watched[peer] = -1;
    }
    if (patience.check) patience.check();
    if (patience.deadline.passed())
      throw Error(DDP_ERROR_TIMED_OUT, "waiting for the other ranks of this host took too long");
  }
}

}  // namespace

FdExchange::FdExchange() : listener_(make_socket()), address_(random_hex(kNameBytes + kSecretBytes)) {
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(address_.substr(0, kNameBytes), &length);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 || listen(listener_.get(), 4096) != 0)
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "no abstract UNIX socket could be opened (%s)", std::strerror(errno));
}

std::vector<Fd> FdExchange::swap(int fd, int32_t rank, const std::vector<std::string>& addresses, const Patience& patience) {
  std::vector<Fd> received;
  on_error([&] { received = swap_all(fd, rank, addresses, patience); }, [this](const Error&) { close(); });
  return received;
}

std::vector<Fd> FdExchange::swap_all(int fd, int32_t rank, const std::vector<std::string>& addresses,
                                     const Patience& patience) {
  const size_t size = addresses.size();
  std::vector<Fd> links(size);
  std::vector<Fd> received(size);
  // Connecting needs no accept on the other side, so no rank waits here.
  for (size_t peer = 0; peer < size; ++peer) {
    if (static_cast<int32_t>(peer) == rank) continue;
    links[peer] = connect_to(addresses[peer].substr(0, kNameBytes), static_cast<int32_t>(peer));
    Hello hello{};
    std::memcpy(hello.secret, addresses[peer].data() + kNameBytes, kSecretBytes);
    hello.rank = rank;
    if (send(links[peer].get(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello))
      throw make_error(DDP_ERROR_NOT_SUPPORTED, "rank %zu's UNIX socket takes no data (%s)", peer, std::strerror(errno));
  }
  std::vector<bool> served(size, false);
  served[static_cast<size_t>(rank)] = true;
  std::vector<int> watched;
  for (const Fd& link : links) watched.push_back(link.get());
  while (std::find(served.begin(), served.end(), false) != served.end()) {
    wait_for_hello(listener_.get(), watched, patience);
    Fd link(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (link.get() < 0 && status_of_errno(errno, DDP_OK) != DDP_OK && errno != EAGAIN) throw no_socket(errno);
    if (link.get() < 0 || !same_user(link.get())) continue;
    const int32_t peer = read_hello(link.get(), address_.substr(kNameBytes), size, patience);
    if (peer < 0 || served[static_cast<size_t>(peer)]) continue;
    send_fd(link.get(), fd, patience);
    served[static_cast<size_t>(peer)] = true;
    watched[static_cast<size_t>(peer)] = -1;
    // Closing at once is safe: sent data stays readable.
  }
  for (size_t peer = 0; peer < size; ++peer)
    if (static_cast<int32_t>(peer) != rank)
      received[peer] = receive_fd(links[peer].get(), static_cast<int32_t>(peer), patience);
  return received;
}

}  // namespace ddp::shm
