// SPDX-License-Identifier: Apache-2.0
#include "modules/gloo/pairs.hpp"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace ddp::gloo {
namespace {

namespace tcp = ::gloo::transport::tcp;

// Gloo listens, whether it is to be connected to or not: each pair in older releases, the device in newer ones. So it
// listens at the broadcast address of the loopback network: a TCP socket may be bound to it, and the kernel neither connects
// to a broadcast address nor answers a connection request to one (RFC 1122, 4.2.3.10). No packet ever reaches Gloo's
// accept().
constexpr const char* kUnreachable = "127.255.255.255";

// Of Gloo's waits that we do not use.
constexpr std::chrono::minutes kUnused{30};

/// Closes untaken descriptors.
struct Owned {
  int descriptor;
  explicit Owned(int fd) : descriptor(fd) {}
  ~Owned() {
    if (descriptor >= 0) ::close(descriptor);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};

}  // namespace

std::shared_ptr<tcp::Device> make_unreachable_device() {
  tcp::attr attributes;
#if DDP_GLOO_HAS_LAZY_DEVICE
  attributes.hostname = kUnreachable;
  auto device = std::dynamic_pointer_cast<tcp::Device>(tcp::CreateDevice(attributes));
#else  // CreateDevice looks the address up, and crashes where that lacks memory
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, kUnreachable, &address.sin_addr);
  std::memcpy(&attributes.ai_addr, &address, sizeof address);
  attributes.ai_family = AF_INET;
  attributes.ai_socktype = SOCK_STREAM;
  attributes.ai_protocol = IPPROTO_TCP;
  attributes.ai_addrlen = sizeof address;
  auto device = std::make_shared<tcp::Device>(attributes);
#endif
  if (device == nullptr) throw std::logic_error("the device of Gloo is of another kind");
  return device;
}

AdmittedPair::AdmittedPair(tcp::Context* context, tcp::Device* device, int peer, int descriptor, std::unique_ptr<Seal> seal)
    : Pair(context, device, peer, kUnused), seal_(std::move(seal)) {
  if (&self_ != &address()) throw std::logic_error("this release of Gloo has pairs of another layout");
  const tcp::Address self = tcp::Address::fromSockName(descriptor);
  const tcp::Address other = tcp::Address::fromPeerName(descriptor);
  const std::lock_guard lock(m_);
  // In older releases this pair listens. To close that socket also ends its place in Gloo's epoll set.
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  device->registerDescriptor(descriptor, EPOLLIN, this);
  fd_ = descriptor;
  self_ = self;
  peer_ = other;
  changeState(CONNECTED);
}

// Gloo tells the messages that wait for their turn, and not the one of which a part has come.
void AdmittedPair::give_up(const ::gloo::NonOwningPtr<tcp::UnboundBuffer>& under_way, const char* what) {
  is_changed_ = errno == EPROTO;
  const bool no_memory = errno == ENOMEM;  // this rank's error, not the connection's
  const char* why = is_changed_ ? seal_->trouble() : std::strerror(errno);
  const auto error = no_memory ? std::make_exception_ptr(std::bad_alloc())
                               : std::make_exception_ptr(std::runtime_error(std::string(what) + peer_.str() + ": " + why));
  if (under_way) static_cast<Transfer*>(under_way.operator->())->fail(error);
  signalException(error);
}

// As Gloo's, of which it calls the parts. A connection that has closed is noticed where it is read.
bool AdmittedPair::write(tcp::Op& op) {
  if (seal_ == nullptr) return Pair::write(op);
  if (state_ == CLOSED) return false;
  const tcp::Op::Opcode opcode = op.getOpcode();
  ::gloo::NonOwningPtr<tcp::UnboundBuffer> buffer;
  if (opcode == tcp::Op::SEND_UNBOUND_BUFFER) {
    buffer = ::gloo::NonOwningPtr<tcp::UnboundBuffer>(op.ubuf);
    if (!buffer) return false;
  }
  for (ssize_t left = 1; left > 0;) {
    std::array<iovec, 2> parts{};
    int number = 0;
    left = prepareWrite(op, buffer, parts.data(), number);
    const ssize_t sent = seal_->write(parts.data(), number);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EPIPE && errno != ECONNRESET) give_up(buffer, "no data can be sent to ");
      return false;
    }
    op.nwritten += static_cast<size_t>(sent);
    left -= sent;
  }
  writeComplete(op, buffer, opcode);
  return true;
}

bool AdmittedPair::read() {
  if (seal_ == nullptr) return Pair::read();
  if (state_ == CLOSED) return false;
  ::gloo::NonOwningPtr<tcp::UnboundBuffer> buffer;
  for (;;) {
    iovec part{};
    const ssize_t wanted = prepareRead(rx_, buffer, part);
    if (wanted < 0) return false;
    if (wanted == 0) break;
    const ssize_t got = seal_->read(part.iov_base, part.iov_len);
    if (got < 0 && errno == EAGAIN) return false;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) {
      give_up(buffer, "no data can be received from ");
      return false;
    }
    rx_.nread += static_cast<size_t>(got);
  }
  readComplete(buffer);
  return true;
}

// Gloo's thread holds the lock while it reads.
uint64_t AdmittedPair::moved() noexcept {
  const std::unique_lock lock(m_, std::try_to_lock);
  if (!lock.owns_lock()) return ++busy_;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (fd_ < 0 || ::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return busy_;
  return info.tcpi_bytes_acked + info.tcpi_bytes_received + busy_;
}

// Since Linux 5.5.
int64_t AdmittedPair::gaps() noexcept {
  const std::lock_guard lock(m_);
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (fd_ < 0 || ::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return 0;
  return info.tcpi_rcv_ooopack;
}

Transfer::Wait Transfer::wait(std::condition_variable& changed, int& completions, bool& aborted,
                              std::chrono::milliseconds timeout) {
  std::unique_lock lock(m_);
  const bool over = changed.wait_for(lock, timeout, [&] {
    throwIfException();
    return aborted || completions > 0;
  });
  if (!over) return Wait::kTimedOut;
  if (std::exchange(aborted, false)) return Wait::kAborted;
  --completions;
  return Wait::kDone;
}

void AdmittedPairs::attach(int peer, int descriptor, std::unique_ptr<Seal> seal) {
  Owned owned{descriptor};
  pairs_.at(static_cast<size_t>(peer)) =
      std::make_unique<AdmittedPair>(this, device_.get(), peer, descriptor, std::move(seal));
  owned.descriptor = -1;
}

}  // namespace ddp::gloo
