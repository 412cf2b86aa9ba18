// SPDX-License-Identifier: Apache-2.0
#include "socket/link_dialer.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/interfaces.hpp"
#include "core/error.hpp"
#include "os/clock.hpp"
#include "socket/link_listener.hpp"

namespace ddp::socket {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kFirstPauseMs = 2;
constexpr int64_t kLongestPauseMs = 200;
constexpr int64_t kAttemptMs = 10'000;  // until it is connected

bool is_no(int error) {
  return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == EACCES || error == EPERM;
}

}  // namespace

LinkDialer::LinkDialer(int32_t peer, LinkName link, const Invitation& there, const auth::Key& group)
    : peer_(peer),
      link_(link),
      where_(net::resolve(there.host, os::Deadline::never()).front().with_port(there.port)),
      token_(link_token(group, there.secret)),
      pause_ms_(kFirstPauseMs) {}

pollfd LinkDialer::watched() const noexcept {
  return {socket_.get(), static_cast<short>(phase_ == Phase::kConnecting ? POLLOUT : POLLIN), 0};
}

net::Socket LinkDialer::serve(short revents) {
  const auto is_due = [this] { return due_ns_ <= os::now_ns(); };
  if (phase_ == Phase::kPause && is_due()) dial();
  if (phase_ == Phase::kConnecting && revents != 0) connected();
  if (phase_ == Phase::kWelcome && revents != 0 && read_welcome()) {
    if (is_welcome(token_, link_, client_, {bytes_.data(), filled_})) {
      tune_link(socket_.get());
      return std::move(socket_);
    }
    fail(EPROTO);
  }
  // Once the other side has our proof it may have taken the connection: then there is no second one.
  if (is_due() && phase_ == Phase::kConnecting) fail(ETIMEDOUT);
  return net::Socket();
}

void LinkDialer::dial() {
  socket_ = net::Socket(::socket(where_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_)
    throw make_error(status_of_errno(errno, DDP_ERROR_IO), "no connection to %s can be made: %s%s", where_.text().c_str(),
                     std::strerror(errno), advice_of_errno(errno));
  phase_ = Phase::kConnecting;
  due_ns_ = os::now_ns() + kAttemptMs * kMs;
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&where_.address), where_.length) != 0 &&
      errno != EINPROGRESS && errno != EINTR)
    fail(errno);
}

void LinkDialer::connected() {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return fail(error);
  refused_since_ns_ = 0;
  greet();
}

// A new socket has room for it.
void LinkDialer::greet() {
  client_ = auth::random_nonce();
  const std::string hello = write_hello(token_, link_, client_);
  if (::send(socket_.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(hello.size()))
    return fail(ECONNRESET);
  filled_ = 0;
  phase_ = Phase::kWelcome;
  due_ns_ = INT64_MAX;
}

// No more than a welcome has: what follows a welcome is the peer's data.
bool LinkDialer::read_welcome() {
  const ssize_t got = ::recv(socket_.get(), bytes_.data() + filled_, bytes_.size() - filled_, MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got <= 0) {
    fail(got < 0 ? errno : ECONNRESET);
    return false;
  }
  filled_ += static_cast<size_t>(got);
  return filled_ == bytes_.size();
}

void LinkDialer::fail(int error) {
  const int64_t now = os::now_ns();
  error_ = error;
  if (!is_no(error)) refused_since_ns_ = 0;
  if (is_no(error) && refused_since_ns_ == 0) refused_since_ns_ = now;
  socket_.reset();
  phase_ = Phase::kPause;
  due_ns_ = now + pause_ms_ * kMs;
  pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
}

int64_t LinkDialer::refused_ms() const noexcept {
  return refused_since_ns_ == 0 ? 0 : (os::now_ns() - refused_since_ns_) / kMs;
}

std::string LinkDialer::trouble() const {
  const char* what = error_ != 0 ? std::strerror(error_) : phase_ == Phase::kConnecting ? "no answer" : "it says nothing";
  return where_.text() + net::way_to(where_) + ": " + what;
}

}  // namespace ddp::socket
