// SPDX-License-Identifier: Apache-2.0
#include "control/link.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <exception>
#include <optional>

#include "core/attempt.hpp"

namespace ddp::bootstrap {
namespace {

constexpr size_t kScratch = size_t{64} << 10;
constexpr int kReadsInTurn = 16;  // then the other connections have their turn

asio::generic::stream_protocol protocol_of(const net::Socket& socket) {
  return {net::local_end(socket).address.ss_family, 0};
}

}  // namespace

Link::Link(asio::io_context& io, net::Socket socket, FrameReader reader, const FrameWriter& writer)
    : socket_(io), in_forks_(socket.get()), reader_(std::move(reader)), writer_(writer) {
  socket_.assign(protocol_of(socket), socket.get());
  (void)socket.release();
}

void Link::start(Events events) {
  events_ = std::move(events);
  wait_to_read();
}

void Link::secure(const auth::SessionKeys& keys, const std::shared_ptr<GroupKey>& group, size_t limit) {
  reader_.set_limit(limit);
  if (group == nullptr) return;
  reader_.secure(keys.to_server);
  writer_.secure(keys.to_client, group);
  if (socket_.is_open() && !finishing_) push([this](Outgoing& out) { out.ends = writer_.group_key(); });
}

void Link::wait_to_read() {
  if (!socket_.is_open()) return;
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->read();
  });
}

void Link::read() {
  for (int i = 0; i < kReadsInTurn && read_some(); ++i) {
  }
  if (const std::optional<Error> failed = try_to([this] { wait_to_read(); })) lack(*failed);
}

void Link::read_all() {
  const std::shared_ptr<Link> self = shared_from_this();
  while (read_some()) {
  }
}

// False if there is nothing more for now, or ever.
bool Link::read_some() {
  static thread_local std::array<char, kScratch> scratch;
  if (!socket_.is_open()) return false;
  const ssize_t got = ::recv(socket_.native_handle(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got > 0) return finishing_ || feed({scratch.data(), static_cast<size_t>(got)});
  lost();
  return false;
}

// False if the connection is of no use any more.
bool Link::feed(std::string_view bytes) {
  std::string how;
  try {
    while (socket_.is_open() && !finishing_) {
      std::optional<Frame> frame = reader_.read(bytes);
      if (!frame.has_value()) return true;
      events_.frame(std::move(*frame));
    }
    return socket_.is_open();
  } catch (const std::exception& error) {
    const Error own = to_error(error);
    if (own.status() == DDP_ERROR_OUT_OF_MEMORY) return lack(own), false;
    how = error.what();
  }
  const Events events = std::exchange(events_, {});
  if (events.broke) events.broke(how);
  close();
  return false;
}

// This rank's own trouble, and none of the other side. The owner may close the link in the call, or throw: then it stays.
void Link::lack(const Error& error) {
  if (!events_.no_memory) throw Error(error);
  std::function<void(const Error&)> no_memory;
  no_memory.swap(events_.no_memory);
  on_error([&] { no_memory(error); }, [&](const Error&) { no_memory.swap(events_.no_memory); });
  close();
}

void Link::lost() {
  const Events events = std::exchange(events_, {});
  close();
  if (events.closed) events.closed();
}

void Link::close() {
  events_ = {};
  queue_.clear();
  asio::error_code ignored;
  in_forks_.forget();
  socket_.close(ignored);
}

void Link::send(FrameType type, SharedBody body) {
  if (!socket_.is_open() || finishing_) return;
  push([&](Outgoing& out) {
    out.ends = writer_.frame(type, *body);
    if (out.ends.sealed == nullptr) out.body = std::move(body);  // else it is not sent itself
  });
}

// The place in the queue comes first: the other side would take a frame that has its number and is not sent for an attack.
template <class Make>
void Link::push(const Make& make) {
  queue_.emplace_back();
  on_error([&] { make(queue_.back()); }, [this](const Error&) { queue_.pop_back(); });
  if (!writing_) write();
}

void Link::finish() {
  if (std::exchange(finishing_, true) || !socket_.is_open()) return;
  if (queue_.empty()) ::shutdown(socket_.native_handle(), SHUT_WR);
}

void Link::wait_to_write() {
  socket_.async_wait(asio::socket_base::wait_write, [self = shared_from_this()](const asio::error_code& error) {
    self->writing_ = false;
    if (!error) self->write();
  });
  writing_ = true;
}

void Link::write() {
  while (!queue_.empty()) {
    if (!write_front()) {
      // A dead connection is detected by reading, so that the last messages of the other side are not lost.
      if (errno == EAGAIN || errno == EWOULDBLOCK) return wait_to_write();
      queue_.clear();
      return;
    }
  }
  if (finishing_ && socket_.is_open()) ::shutdown(socket_.native_handle(), SHUT_WR);
}

// True when the first frame is sent; otherwise errno has the reason.
bool Link::write_front() {
  Outgoing& out = queue_.front();
  const std::array<const std::string*, 3> parts = {
      &out.ends.head, out.ends.sealed != nullptr ? &out.ends.sealed->bytes : &out.body->bytes(), &out.ends.tail};
  std::array<iovec, 3> pieces{};
  for (;;) {
    size_t count = 0, skip = out.sent;
    for (const std::string* part : parts) {
      if (skip >= part->size()) {
        skip -= part->size();
        continue;
      }
      pieces[count++] = {const_cast<char*>(part->data() + skip), part->size() - skip};
      skip = 0;
    }
    if (count == 0) break;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    out.sent += static_cast<size_t>(sent);
  }
  queue_.pop_front();
  return true;
}

}  // namespace ddp::bootstrap
