#include "collective/socket/gloo/endpoint.hpp"

// Older releases of Gloo need <cstdint> before their headers.
#include <arpa/inet.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <stdexcept>

#include "collective/socket/gloo/signals.hpp"

namespace ddp::gloo {
namespace {

// Gloo resolves names, and reads an uninitialised pointer when that fails; a numeric address cannot fail.
void require_numeric(const std::string& address) {
  unsigned char bytes[sizeof(in6_addr)];
  if (inet_pton(AF_INET, address.c_str(), bytes) != 1 && inet_pton(AF_INET6, address.c_str(), bytes) != 1)
    throw std::invalid_argument("not a numeric address");
}

std::shared_ptr<::gloo::transport::Device> make_device(const std::string& address) {
  require_numeric(address);
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  return ::gloo::transport::tcp::CreateDevice(attributes);
}

// Gloo waits five times as long for a connection as it was told.
constexpr int kGlooConnectFactor = 5;

}  // namespace

class PeersContext : public ::gloo::Context {
 public:
  PeersContext(int32_t index, int32_t members, std::shared_ptr<::gloo::transport::Device> device,
               std::chrono::milliseconds timeout)
      : ::gloo::Context(index, members) {
    device_ = std::move(device);
    transportContext_ = device_->createContext(index, members);
    transportContext_->setTimeout(timeout);
  }
  ::gloo::transport::Pair& make_pair(int32_t peer) {
    auto& pair = transportContext_->createPair(peer);
    pair->setLocalRank(0);
    return *pair;
  }
  ::gloo::transport::Pair& pair(int32_t peer) { return *transportContext_->getPair(peer); }
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer(void* data, size_t bytes) {
    return transportContext_->createUnboundBuffer(data, bytes);
  }
};

Endpoint::Endpoint(int32_t index, int32_t size, const std::string& address, std::chrono::milliseconds connect_timeout)
    : index_(index) {
  const AllSignalsBlocked blocked;  // the device's thread inherits it
  auto timeout = connect_timeout / kGlooConnectFactor;
  if (timeout < std::chrono::milliseconds(100)) timeout = std::chrono::milliseconds(100);
  const auto device = make_device(address);
  for (auto& context : contexts_) context = std::make_unique<PeersContext>(index, size, device, timeout);
}

Endpoint::~Endpoint() = default;

bool Endpoint::is_aborted() {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

std::vector<char> Endpoint::address_for(int32_t peer) {
  const AllSignalsBlocked blocked;
  std::vector<char> both;
  for (auto& context : contexts_) {
    const auto one = context->make_pair(peer).address().bytes();
    both.insert(both.end(), one.begin(), one.end());
  }
  peers_.push_back(peer);
  return both;
}

ddp_socket_result Endpoint::connect(int32_t peer, const std::vector<char>& address) {
  const AllSignalsBlocked blocked;
  const auto middle = address.begin() + static_cast<std::ptrdiff_t>(address.size() / 2);
  const ddp_socket_result first = connect_one(*contexts_[0], peer, {address.begin(), middle});
  return first != DDP_SOCKET_DONE ? first : connect_one(*contexts_[1], peer, {middle, address.end()});
}

ddp_socket_result Endpoint::connect_one(PeersContext& context, int32_t peer, const std::vector<char>& address) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return DDP_SOCKET_ABORTED;
    connecting_ = &context.pair(peer);
  }
  const auto done = [this] {
    const std::lock_guard lock(mutex_);
    connecting_ = nullptr;
    return aborted_ ? DDP_SOCKET_ABORTED : DDP_SOCKET_DONE;
  };
  try {
    context.pair(peer).connect(address);
  } catch (const std::exception&) {
    if (done() == DDP_SOCKET_ABORTED) return DDP_SOCKET_ABORTED;
    throw;
  }
  return done();
}

// Before a message is posted, which cannot be taken back when memory runs out.
void Endpoint::make_room() {
  if (!unused_.empty()) return;
  unused_.reserve(messages_.size() + 1);  // so that giving a ticket back never fails
  messages_.emplace_back();
  unused_.push_back(static_cast<int64_t>(messages_.size()));
}

int64_t Endpoint::keep(std::unique_ptr<::gloo::transport::UnboundBuffer> buffer, bool is_send) noexcept {
  const int64_t ticket = unused_.back();
  unused_.pop_back();
  messages_[static_cast<size_t>(ticket - 1)] = Message{std::move(buffer), is_send};
  return ticket;
}

ddp_socket_result Endpoint::post_send(int32_t peer, uint64_t slot, const void* data, size_t bytes, int64_t& ticket) {
  if (is_aborted()) return DDP_SOCKET_ABORTED;
  if (closed_ || bytes == 0) throw std::logic_error("the connections are closed");
  const NoSigpipe guard;  // Gloo writes at once, on this thread, if the peer is ready
  make_room();
  auto buffer = context(peer > index_).buffer(const_cast<void*>(data), bytes);
  buffer->send(peer, slot, 0, bytes);
  ticket = keep(std::move(buffer), true);
  return DDP_SOCKET_DONE;
}

ddp_socket_result Endpoint::post_receive(int32_t peer, uint64_t slot, void* data, size_t bytes, int64_t& ticket) {
  if (is_aborted()) return DDP_SOCKET_ABORTED;
  if (closed_ || bytes == 0) throw std::logic_error("the connections are closed");
  const NoSigpipe guard;  // a receive tells the peer that it is ready
  make_room();
  auto buffer = context(peer < index_).buffer(data, bytes);
  buffer->recv(peer, slot, 0, bytes);
  ticket = keep(std::move(buffer), false);
  return DDP_SOCKET_DONE;
}

ddp_socket_result Endpoint::wait(int64_t ticket, std::chrono::milliseconds timeout) {
  if (ticket < 1 || ticket > static_cast<int64_t>(messages_.size())) throw std::logic_error("no such message");
  Message& message = messages_[static_cast<size_t>(ticket - 1)];
  if (message.buffer == nullptr) throw std::logic_error("the connections are closed");
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return DDP_SOCKET_ABORTED;
    waiting_ = &message;
  }
  const auto over = [this] {
    const std::lock_guard lock(mutex_);
    waiting_ = nullptr;
    return aborted_;
  };
  const auto begin = std::chrono::steady_clock::now();
  bool arrived = false;
  try {
    arrived = message.is_send ? message.buffer->waitSend(timeout) : message.buffer->waitRecv(timeout);
  } catch (const std::exception&) {
    if (over()) return DDP_SOCKET_ABORTED;
    if (std::chrono::steady_clock::now() - begin >= timeout) return DDP_SOCKET_TIMED_OUT;
    throw;
  }
  if (over() || !arrived) return DDP_SOCKET_ABORTED;
  message.buffer.reset();
  unused_.push_back(ticket);
  return DDP_SOCKET_DONE;
}

// An abort that comes just before Gloo's wait begins is kept by the buffer, so none is lost.
void Endpoint::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (waiting_ != nullptr && waiting_->is_send) waiting_->buffer->abortWaitSend();
  if (waiting_ != nullptr && !waiting_->is_send) waiting_->buffer->abortWaitRecv();
  if (connecting_ != nullptr) connecting_->close();
}

// Pairs first: a buffer that is gone while its bytes still arrive keeps Gloo's thread spinning.
void Endpoint::close() {
  closed_ = true;
  for (const auto& context : contexts_)
    for (const int32_t peer : peers_) context->pair(peer).close();
  messages_.clear();
  unused_.clear();
}

}  // namespace ddp::gloo
