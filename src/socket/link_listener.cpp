// SPDX-License-Identifier: Apache-2.0
#include "socket/link_listener.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/limits.hpp"
#include "os/clock.hpp"

namespace ddp::socket {
namespace {

namespace limits = bootstrap::limits;

constexpr int kAcceptsInTurn = 64;
constexpr int64_t kPauseMs = 50;       // when descriptors have run out
constexpr int64_t kWithoutMs = 5'000;  // and no longer than that

bool send_all(const net::Socket& socket, const std::string& bytes) {
  // A new socket has room for it.
  return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

LinkListener::LinkListener(const std::string& address, const bootstrap::PortRange& ports, const auth::Key& group,
                           const Sealing& sealing)
    : listener_(bootstrap::listen_in_range(net::resolve(address, os::Deadline::never()).front(), ports, "this rank")),
      most_pending_(net::unauthenticated_limit(limits::kUnauthenticatedPending)) {
  const net::Endpoint here = net::local_end(listener_);
  invitation_ = {here.host(), here.port(), auth::random_nonce()};
  token_ = link_token(group, invitation_.secret);
  table_ = sealing.seals(invitation_.host, group) ? sealing.table : nullptr;
  pending_.reserve(most_pending_ + 1);
}

void LinkListener::watch(std::vector<pollfd>& polled) {
  const bool paused = paused_until_ns_ > os::now_ns();
  polled.push_back({listener_.get(), static_cast<short>(paused ? 0 : POLLIN), 0});
  for (const Pending& pending : pending_) polled.push_back({pending.socket.get(), POLLIN, 0});
  for (const Sealed& one : sealing_) polled.push_back({one.connection.socket.get(), one.awaits, 0});
}

void LinkListener::serve(const pollfd* polled, const Admit& admit) {
  const int64_t now = os::now_ns();
  for (size_t at = sealing_.size(); at-- > 0;) {
    if (polled[1 + pending_.size() + at].revents == 0 || seal(sealing_[at], admit) == Step::kWait) continue;
    sealing_.erase(sealing_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  for (size_t at = pending_.size(); at-- > 0;) {
    Step step = polled[at + 1].revents != 0 ? read(pending_[at], admit) : Step::kWait;
    if (step == Step::kWait && pending_[at].until_ns < now) step = Step::kDrop;
    if (step == Step::kDrop) ++turned_away_;
    if (step != Step::kWait) drop(at);
  }
  if (polled[0].revents != 0) accept_some();
}

void LinkListener::accept_some() {
  for (int i = 0; i < kAcceptsInTurn; ++i) {
    net::Socket socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = errno;
    if (!net::is_exhausted(error) || socket) without_since_ns_ = 0;
    if (socket) {
      add(std::move(socket));
    } else if (net::is_exhausted(error) && !pending_.empty()) {
      drop_one();
    } else if (net::is_exhausted(error)) {
      return pause(error);
    } else if (error == EAGAIN || error == EWOULDBLOCK) {
      return;
    }  // anything else concerns a connection that has closed
  }
}

void LinkListener::pause(int error) {
  const int64_t now = os::now_ns();
  if (without_since_ns_ == 0) without_since_ns_ = now;
  if (now - without_since_ns_ > kWithoutMs * os::kNsPerMs)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "no connection of another rank can be taken: %s%s", std::strerror(error),
                     advice_of_errno(error));
  paused_until_ns_ = now + kPauseMs * os::kNsPerMs;
}

void LinkListener::add(net::Socket socket) {
  Pending pending;
  pending.until_ns = os::now_ns() + limits::kStrangerMs * os::kNsPerMs;
  pending.socket = std::move(socket);
  pending_.push_back(std::move(pending));
  if (pending_.size() > most_pending_) drop_one();
}

// Only a hello is read: the following bytes are for the user of the connection.
LinkListener::Step LinkListener::read(Pending& pending, const Admit& admit) {
  const ssize_t got = ::recv(pending.socket.get(), pending.bytes.data() + pending.filled,
                             pending.bytes.size() - pending.filled, MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return Step::kWait;
  if (got <= 0) return Step::kDrop;
  pending.filled += static_cast<size_t>(got);
  const std::string_view bytes(pending.bytes.data(), pending.filled);
  if (!may_be_hello(bytes)) return Step::kDrop;
  if (pending.filled < pending.bytes.size()) return Step::kWait;
  const std::optional<Hello> hello = read_hello(token_, bytes);
  if (!hello.has_value() || !is_new(hello->client)) return Step::kDrop;
  if (table_ != nullptr) {
    Sealed one{hello->link, {std::move(pending.socket)}};
    const auth::Key key = seal_key(token_, hello->link, hello->client);
    one.connection.seal = std::make_unique<Seal>(*table_, one.connection.socket, Seal::End::kListens, key);
    if (seal(one, admit) == Step::kWait) sealing_.push_back(std::move(one));
    return Step::kAdmitted;
  }
  if (!send_all(pending.socket, write_welcome(token_, hello->link, hello->client))) return Step::kDrop;
  tune_link(pending.socket.get());
  return admit(hello->link, {std::move(pending.socket)}) ? Step::kAdmitted : Step::kDrop;
}

LinkListener::Step LinkListener::seal(Sealed& one, const Admit& admit) {
  const Seal::Step step = one.connection.seal->shake_hands();
  one.awaits = step == Seal::Step::kWrites ? POLLOUT : POLLIN;
  if (step == Seal::Step::kReads || step == Seal::Step::kWrites) return Step::kWait;
  if (step == Seal::Step::kDone) tune_link(one.connection.socket.get());
  if (step == Seal::Step::kDone && admit(one.link, std::move(one.connection))) return Step::kAdmitted;
  ++turned_away_;
  return Step::kDrop;
}

bool LinkListener::is_new(const auth::Nonce& client) {
  if (std::find(proved_.begin(), proved_.end(), client) != proved_.end()) return false;
  proved_.push_back(client);
  return true;
}

void LinkListener::drop(size_t at) {
  if (at + 1 != pending_.size()) std::swap(pending_[at], pending_.back());
  pending_.pop_back();
}

void LinkListener::drop_one() {
  const auth::Nonce random = auth::random_nonce();
  uint64_t chance = 0;
  std::memcpy(&chance, random.data(), sizeof chance);
  ++turned_away_;
  drop(chance % pending_.size());
}

void tune_link(int fd) noexcept {
  constexpr int kOn = 1, kIdleS = 60, kBetweenS = 10, kProbes = 6, kUnsentBytes = 128 << 10;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  // A message counts as sent while so much of it waits in the kernel: not more, so that the next one is begun in time only.
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
  (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleS, sizeof kIdleS);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kBetweenS, sizeof kBetweenS);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

}  // namespace ddp::socket
