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

constexpr int64_t kFirstPauseMs = 2;
constexpr int64_t kLongestPauseMs = 200;
constexpr int64_t kAttemptMs = 10'000;  // until it is connected

bool is_no(int error) {
  return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == EACCES || error == EPERM;
}

}  // namespace

LinkDialer::LinkDialer(int32_t peer, LinkName link, const Invitation& there, const auth::Key& group, const Sealing& sealing)
    : peer_(peer),
      link_(link),
      where_(net::resolve(there.host, os::Deadline::never()).front().with_port(there.port)),
      token_(link_token(group, there.secret)),
      table_(sealing.seals(there.host, group) ? sealing.table : nullptr),
      pause_ms_(kFirstPauseMs) {}

pollfd LinkDialer::watched() const noexcept {
  return {connection_.socket.get(), static_cast<short>(phase_ == Phase::kConnecting ? POLLOUT : awaits_), 0};
}

Connection LinkDialer::serve(short revents) {
  const auto is_due = [this] { return due_ns_ <= os::now_ns(); };
  if (phase_ == Phase::kPause && is_due()) dial();
  if (phase_ == Phase::kConnecting && revents != 0) connected();
  if (phase_ == Phase::kWelcome && revents != 0 && read_welcome()) {
    if (is_welcome(token_, link_, client_, {bytes_.data(), filled_})) {
      tune_link(connection_.socket.get());
      return std::move(connection_);
    }
    fail(EPROTO);
  }
  if (phase_ == Phase::kSealing && revents != 0 && seal()) {
    tune_link(connection_.socket.get());
    return std::move(connection_);
  }
  // Once the other side has our proof it may have taken the connection: then there is no second one.
  if (is_due() && phase_ == Phase::kConnecting) fail(ETIMEDOUT);
  return {};
}

void LinkDialer::dial() {
  connection_.socket = net::Socket(::socket(where_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection_.socket)
    throw make_error(status_of_errno(errno, DDP_ERROR_IO), "no connection to %s can be made: %s%s", where_.text().c_str(),
                     std::strerror(errno), advice_of_errno(errno));
  phase_ = Phase::kConnecting;
  due_ns_ = os::now_ns() + kAttemptMs * os::kNsPerMs;
  if (::connect(connection_.socket.get(), reinterpret_cast<const sockaddr*>(&where_.address), where_.length) != 0 &&
      errno != EINPROGRESS && errno != EINTR)
    fail(errno);
}

void LinkDialer::connected() {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(connection_.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return fail(error);
  refused_since_ns_ = 0;
  greet();
}

// A new socket has room for it.
void LinkDialer::greet() {
  client_ = auth::random_nonce();
  const std::string hello = write_hello(token_, link_, client_);
  if (::send(connection_.socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(hello.size()))
    return fail(ECONNRESET);
  filled_ = 0;
  due_ns_ = INT64_MAX;
  awaits_ = POLLIN;
  phase_ = table_ == nullptr ? Phase::kWelcome : Phase::kSealing;
  if (table_ == nullptr) return;
  connection_.seal =
      std::make_unique<Seal>(*table_, connection_.socket, Seal::End::kConnects, seal_key(token_, link_, client_));
  (void)seal();  // its first message goes with the hello
}

// False until the link is sealed; ends the attempt if it never will be.
bool LinkDialer::seal() {
  const Seal::Step step = connection_.seal->shake_hands();
  awaits_ = step == Seal::Step::kWrites ? POLLOUT : POLLIN;
  if (step == Seal::Step::kFailed) fail(EPROTO);
  return step == Seal::Step::kDone;
}

// No more than a welcome has: what follows a welcome is the peer's data.
bool LinkDialer::read_welcome() {
  const ssize_t got = ::recv(connection_.socket.get(), bytes_.data() + filled_, bytes_.size() - filled_, MSG_DONTWAIT);
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
  connection_ = {};
  phase_ = Phase::kPause;
  due_ns_ = now + pause_ms_ * os::kNsPerMs;
  pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
}

int64_t LinkDialer::refused_ms() const noexcept {
  return refused_since_ns_ == 0 ? 0 : (os::now_ns() - refused_since_ns_) / os::kNsPerMs;
}

std::string LinkDialer::trouble() const {
  const char* what = error_ != 0 ? std::strerror(error_) : phase_ == Phase::kConnecting ? "no answer" : "it says nothing";
  return where_.text() + net::way_to(where_) + ": " + what;
}

}  // namespace ddp::socket
