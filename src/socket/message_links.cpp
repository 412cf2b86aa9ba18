// SPDX-License-Identifier: Apache-2.0
#include "socket/message_links.hpp"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "bootstrap/failure.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "os/clock.hpp"
#include "os/log.hpp"
#include "os/thread.hpp"

namespace ddp::socket {
namespace {

constexpr int32_t kLane = 0;
constexpr int64_t kFinishMs = 500;
constexpr size_t kAhead = size_t{16} << 10;  // bytes that are read together with a frame

net::Socket checked(int descriptor, const char* what) {
  if (descriptor < 0)
    throw make_error(status_of_errno(errno, DDP_ERROR_INTERNAL), "no %s: %s%s", what, std::strerror(errno),
                     advice_of_errno(errno));
  return net::Socket(descriptor);
}

}  // namespace

MessageLinks::MessageLinks(const collective::TransportContext& context, const ddp_socket_table& table, std::string address,
                           std::optional<messages::Bell> bell)
    : context_(context),
      sealing_{&table, context.options.links},
      address_(std::move(address)),
      rank_(context.control->rank()),
      bell_(bell.has_value() ? *bell : messages::Bell(own_bell_.word, own_bell_.sleeping)),
      pipes_(static_cast<size_t>(context.control->size())) {
  context.control->on_letter([this](int32_t from, const std::string& text) {
    if (const std::optional<Error> failed = try_to([&] { invited_by(from, text); })) break_group(*failed);
  });
}

MessageLinks::~MessageLinks() {
  context_.control->on_letter({});
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

// ---- of the thread that sends and receives

void MessageLinks::open(int32_t peer) {
  Pipe& to = pipe(peer);
  if (to.state.load() != Pipe::State::kNone || is_out_of_reach(peer)) return;
  std::string invitation;
  {
    const std::lock_guard lock(mutex_);
    if (to.state.load() != Pipe::State::kNone) return;
    if (!listener_.has_value())
      listener_.emplace(address_, bootstrap::port_range_of(context_.options), context_.control->link_key(), sealing_);
    start_thread();
    invitation = write_invitation(listener_->invitation());
    to.deadline = os::Deadline::in_ms(context_.options.rendezvous_timeout_ms);
    to.state = Pipe::State::kInvited;
  }
  context_.control->write_letter(peer, invitation);
}

size_t MessageLinks::write(int32_t peer, messages::Bytes first, messages::Bytes second) {
  Pipe& to = pipe(peer);
  if (to.state.load() != Pipe::State::kOpen || to.ended.load()) return 0;
  if (Seal* const seal = to.connection.seal.get(); seal != nullptr) {
    const int64_t sent = seal->write(first.data, first.count, second.data, second.count);
    if (sent < -1) end(peer, sent);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }
  iovec parts[] = {{const_cast<std::byte*>(first.data), first.count}, {const_cast<std::byte*>(second.data), second.count}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t sent = ::sendmsg(to.connection.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ENOBUFS && errno != ENOMEM) to.ended = true;
  return 0;
}

size_t MessageLinks::read(int32_t peer, std::byte* data, size_t count) {
  Pipe& from = pipe(peer);
  if (from.at < from.ahead.size()) {
    const size_t got = std::min(count, from.ahead.size() - from.at);
    std::memcpy(data, from.ahead.data() + from.at, got);
    from.at += got;
    return got;
  }
  if (count >= kAhead) return receive(peer, data, count);
  from.ahead.resize(kAhead);
  const size_t got = receive(peer, from.ahead.data(), kAhead);
  from.ahead.resize(got);
  from.at = 0;
  return got == 0 ? 0 : read(peer, data, count);
}

// The thread says when there may be something to read, and this asks until nothing is.
size_t MessageLinks::receive(int32_t peer, std::byte* data, size_t count) {
  Pipe& from = pipe(peer);
  if (from.ended.load() || !from.readable.exchange(false)) return 0;
  if (Seal* const seal = from.connection.seal.get(); seal != nullptr) {
    const int64_t came = seal->read(data, count);
    if (came > 0) from.readable = true;
    if (came == 0) from.ended = true;
    if (came < -1) end(peer, came);
    return came > 0 ? static_cast<size_t>(came) : 0;
  }
  const ssize_t got = ::recv(from.connection.socket.get(), data, count, MSG_DONTWAIT);
  const bool again = got < 0 && (errno == EINTR || errno == ENOMEM);
  if (got > 0 || again) from.readable = true;
  if (got == 0 || (got < 0 && !again && errno != EAGAIN && errno != EWOULDBLOCK)) from.ended = true;
  return got > 0 ? static_cast<size_t>(got) : 0;
}

// No other rank has a better cause than bytes that were changed, or this rank's lack of memory.
void MessageLinks::end(int32_t peer, int64_t result) noexcept {
  Pipe& of = pipe(peer);
  of.ended = true;
  if (result == DDP_SOCKET_SEAL_NO_MEMORY)
    static_cast<void>(try_to([&] { break_group(Error(DDP_ERROR_OUT_OF_MEMORY, of.connection.seal->trouble())); }));
  if (result != DDP_SOCKET_SEAL_CHANGED) return;
  static_cast<void>(try_to([&] {
    break_group(make_error(DDP_ERROR_PEER_FAILED,
                           "other bytes came from %s than it has sent, with a message (%s): somebody or something changes "
                           "them on their way",
                           context_.control->member(peer).name().c_str(), of.connection.seal->trouble())
                    .about(peer));
  }));
}

const std::vector<int32_t>& MessageLinks::sources() {
  const std::lock_guard lock(mutex_);
  if (sources_.size() != opened_.size()) sources_ = opened_;
  return sources_;
}

bool MessageLinks::has_ended(int32_t peer) {
  const Pipe& from = pipe(peer);
  return from.ended.load() && from.at == from.ahead.size();
}

bool MessageLinks::is_on_its_way(int32_t peer) { return pipe(peer).state.load() != Pipe::State::kNone && !has_ended(peer); }

// Invitations pass through rank 0, which hands on none once a rank has left. One that was sent before may still be answered.
bool MessageLinks::is_out_of_reach(int32_t peer) {
  if (!context_.failure->broken()) return false;
  switch (pipe(peer).state.load()) {
    case Pipe::State::kNone: return true;
    case Pipe::State::kInvited:
    case Pipe::State::kDials: {
      const std::lock_guard lock(mutex_);
      return pipe(peer).deadline.passed();
    }
    case Pipe::State::kOpen: break;
  }
  return false;
}

std::vector<int32_t> MessageLinks::all_others() const {
  std::vector<int32_t> others;
  for (int32_t rank = 0; rank < context_.control->size(); ++rank)
    if (rank != rank_) others.push_back(rank);
  return others;
}

void MessageLinks::open_all(os::Deadline deadline, const std::vector<int32_t>& peers) {
  for (const int32_t peer : peers)
    if (peer > rank_) open(peer);
  const auto is_open = [this](int32_t peer) { return pipe(peer).state.load() == Pipe::State::kOpen; };
  const auto all = [&] { return std::all_of(peers.begin(), peers.end(), is_open); };
  while (!all()) {
    context_.failure->check();
    if (deadline.passed()) {
      ErrorDetails late;
      std::copy_if(peers.begin(), peers.end(), std::back_inserter(late.ranks), [&](int32_t peer) { return !is_open(peer); });
      if (late.ranks.empty()) continue;  // the last one has come now
      throw make_error(DDP_ERROR_TIMED_OUT, "%s did not connect for messages within %s",
                       context_.control->member(late.ranks.front()).name().c_str(),
                       bootstrap::texts::seconds(context_.options.rendezvous_timeout_ms).c_str())
          .about(late.ranks.front())
          .with(late);
    }
    bell_.sleep(std::min<int64_t>(deadline.left_ms(), kLongestWaitMs / 5), all);
  }
}

// What a rank has written is lost if it closes a connection over which something has come that it has not read. So it ends
// its own direction alone; the connection stays as long as the group's object, which models may keep.
void MessageLinks::finish() noexcept {
  const os::Deadline deadline = os::Deadline::in_ms(kFinishMs);
  for (Pipe& to : pipes_) {
    if (to.state.load() == Pipe::State::kOpen) static_cast<void>(::shutdown(to.connection.socket.get(), SHUT_WR));
    int unsent = 0;
    while (to.state.load() == Pipe::State::kOpen && !to.ended.load() && !context_.failure->woken() && !deadline.passed() &&
           ::ioctl(to.connection.socket.get(), SIOCOUTQ, &unsent) == 0 && unsent > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// ---- of the control plane's thread

void MessageLinks::invited_by(int32_t peer, const std::string& text) {
  const Invitation there = read_invitation(text);
  const std::lock_guard lock(mutex_);
  Pipe& from = pipe(peer);
  const Pipe::State state = from.state.load();
  const bool is_mine = state == Pipe::State::kInvited && rank_ < peer;  // of two invitations that of the lower rank holds
  if (stops_ || is_mine || state == Pipe::State::kDials || state == Pipe::State::kOpen) return;
  dialers_.emplace_back(peer, LinkName{rank_, kLane}, there, context_.control->link_key(), sealing_);
  from.deadline = os::Deadline::in_ms(context_.options.rendezvous_timeout_ms);
  from.state = Pipe::State::kDials;
  start_thread();
}

// With the lock held, as all below but run(), turn() and wait().
void MessageLinks::start_thread() {
  if (!thread_.joinable()) {
    wake_ = checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "event descriptor");
    events_ = checked(::epoll_create1(EPOLL_CLOEXEC), "set of events");
    thread_ = os::start_thread("ddp-messages", [this] { run(); });
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

// ---- of the thread

void MessageLinks::run() noexcept {
  std::vector<pollfd> polled;
  const auto stops = [this] {
    const std::lock_guard lock(mutex_);
    return stops_;
  };
  while (!stops())
    if (const std::optional<Error> failed = try_to([&] { turn(polled); })) {
      os::log_of(*failed, DDP_LOG_ERROR, "the connections for messages of rank %d: %s", rank_, failed->what());
      return break_group(*failed);
    }
}

void MessageLinks::turn(std::vector<pollfd>& polled) {
  size_t dialers = 0;
  int64_t due_ns = os::now_ns() + kLongestWaitMs * os::kNsPerMs;
  {
    const std::lock_guard lock(mutex_);
    polled = {{wake_.get(), POLLIN, 0}, {events_.get(), POLLIN, 0}};
    for (const LinkDialer& dialer : dialers_) {
      polled.push_back(dialer.watched());
      due_ns = std::min(due_ns, dialer.due_ns());
    }
    dialers = dialers_.size();
    if (listener_.has_value()) listener_->watch(polled);
  }
  const int64_t wait_ms = std::max<int64_t>((due_ns - os::now_ns() + os::kNsPerMs - 1) / os::kNsPerMs, 0);
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait_ms)) < 0 && errno != EINTR)
    throw make_error(status_of_errno(errno, DDP_ERROR_INTERNAL), "poll failed: %s", std::strerror(errno));
  uint64_t rings = 0;
  if (polled[0].revents != 0) (void)!::read(wake_.get(), &rings, sizeof rings);
  if (polled[1].revents != 0) note_events();
  const std::lock_guard lock(mutex_);
  serve_dialers(polled.data() + 2, dialers);
  if (listener_.has_value() && polled.size() == 2 + dialers + 1 + listener_->waiting())
    listener_->serve(polled.data() + 2 + dialers, [this](LinkName link, Connection connection) {
      if (link.lane != kLane || link.from < 0 || link.from >= context_.control->size() ||
          pipe(link.from).state.load() != Pipe::State::kInvited)
        return false;
      adopt(link.from, std::move(connection));
      return true;
    });
  check_deadlines();
  if (listener_.has_value() && !is_awaited()) listener_.reset();
}

// Some may have been added since it was asked what to poll; they come behind.
void MessageLinks::serve_dialers(const pollfd* polled, size_t number) {
  for (size_t at = number; at-- > 0;) {
    LinkDialer& dialer = dialers_[at];
    Connection link = dialer.serve(polled[at].revents);
    const int32_t peer = dialer.peer();
    if (dialer.refused_ms() > kRefusedMs)
      throw make_error(DDP_ERROR_PEER_FAILED, "%s cannot be reached for messages at %s; %s",
                       context_.control->member(peer).name().c_str(), dialer.trouble().c_str(),
                       bootstrap::texts::unreachable_advice(dialer.error()).c_str())
          .about(peer);
    if (!link) continue;
    dialers_.erase(dialers_.begin() + static_cast<std::ptrdiff_t>(at));
    adopt(peer, std::move(link));
  }
}

void MessageLinks::note_events() {
  epoll_event events[64];
  const int number = ::epoll_wait(events_.get(), events, std::size(events), 0);
  for (int at = 0; at < number; ++at)
    if ((events[at].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0)
      pipe(static_cast<int32_t>(events[at].data.u32)).readable = true;
  if (number > 0) bell_.ring();
}

void MessageLinks::adopt(int32_t peer, Connection connection) {
  Pipe& to = pipe(peer);
  to.in_forks = std::make_unique<os::ClosedInForks>(connection.socket.get());
  to.connection = std::move(connection);
  opened_.push_back(peer);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u32 = static_cast<uint32_t>(peer);
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, to.connection.socket.get(), &event) != 0)
    throw make_error(status_of_errno(errno, DDP_ERROR_INTERNAL), "a connection cannot be watched: %s%s",
                     std::strerror(errno), advice_of_errno(errno));
  to.readable = true;
  to.state = Pipe::State::kOpen;
  bell_.ring();
}

bool MessageLinks::is_awaited() const {
  return std::any_of(pipes_.begin(), pipes_.end(),
                     [](const Pipe& each) { return each.state.load() == Pipe::State::kInvited; });
}

void MessageLinks::check_deadlines() {
  for (size_t peer = 0; peer < pipes_.size(); ++peer) {
    const Pipe& to = pipes_[peer];
    const Pipe::State state = to.state.load();
    if ((state != Pipe::State::kInvited && state != Pipe::State::kDials) || !to.deadline.passed()) continue;
    if (context_.failure->broken()) continue;  // other connections are still used
    throw make_error(DDP_ERROR_TIMED_OUT, "%s did not connect for messages within %s",
                     context_.control->member(static_cast<int32_t>(peer)).name().c_str(),
                     bootstrap::texts::seconds(context_.options.rendezvous_timeout_ms).c_str())
        .about(static_cast<int32_t>(peer));
  }
}

void MessageLinks::break_group(const Error& cause) noexcept {
  if (context_.failure->woken()) return;
  static_cast<void>(try_to([&] {
    const ddp_status status = breaks_group(cause.status()) ? cause.status() : DDP_ERROR_PEER_FAILED;
    const Error told = make_error(status, "%s has no connections for messages any more: %s",
                                  context_.control->member(rank_).name().c_str(), cause.what());
    const Error& said = breaks_group(cause.status()) ? cause : told;
    context_.control->abort(said);
    context_.failure->set(said);
  }));
}

}  // namespace ddp::socket
