// SPDX-License-Identifier: Apache-2.0
#include "socket/connector.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "os/clock.hpp"
#include "os/log.hpp"

namespace ddp::socket {
namespace {

net::Socket make_wake() {
  net::Socket wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake)
    throw make_error(status_of_errno(errno, DDP_ERROR_INTERNAL), "no event descriptor: %s%s", std::strerror(errno),
                     advice_of_errno(errno));
  return wake;
}

}  // namespace

Connector::Connector(int32_t index, int32_t lanes, const std::string& address, const bootstrap::PortRange& ports,
                     const auth::Key& group, const Sealing& sealing)
    : index_(index),
      lanes_(lanes),
      group_(group),
      sealing_(sealing),
      listener_(address, ports, group, sealing),
      wake_(make_wake()) {}

std::string Connector::place() const {
  return net::resolve(invitation().host, os::Deadline::never()).front().with_port(invitation().port).text();
}

void Connector::abort() noexcept {
  aborted_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

Connected Connector::connect(const std::vector<Invitation>& members, os::Deadline deadline) {
  const auto size = static_cast<int32_t>(members.size());
  links_.resize(members.size() * static_cast<size_t>(lanes_));
  missing_ = int64_t{size - 1} * lanes_;
  for (int32_t peer = 0; peer < index_; ++peer)
    for (int32_t lane = 0; lane < lanes_; ++lane)
      dialers_.emplace_back(peer, LinkName{index_, lane}, members[static_cast<size_t>(peer)], group_, sealing_);

  const auto admit = [&](LinkName link, Connection connection) {
    const bool expected = link.from > index_ && link.from < size && link.lane >= 0 && link.lane < lanes_;
    return expected && place_link(link.from, link.lane, std::move(connection));
  };
  std::vector<pollfd> polled;
  while (missing_ > 0) {
    wait(polled, deadline);
    if (aborted_) return unfinished(LinkResult::kAborted);
    for (size_t at = dialers_.size(); at-- > 0;) {
      LinkDialer& dialer = dialers_[at];
      Connection link = dialer.serve(polled[1 + at].revents);
      if (dialer.refused_ms() > kRefusedMs) return unfinished(LinkResult::kFailed);
      if (!link) continue;
      (void)place_link(dialer.peer(), dialer.lane(), std::move(link));
      dialers_.erase(dialers_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    listener_.serve(polled.data() + polled.size() - (listener_.waiting() + 1), admit);
    if (missing_ > 0 && deadline.passed()) return unfinished(LinkResult::kTimedOut);
  }
  if (turned_away() > 0)
    os::log(DDP_LOG_INFO, "%lld connections to %s were turned away: they did not belong to this group",
            static_cast<long long>(turned_away()), place().c_str());
  return {};
}

// What is polled: the word to stop, the dialers, then what the listener adds.
void Connector::wait(std::vector<pollfd>& polled, os::Deadline deadline) {
  polled.clear();
  polled.push_back({wake_.get(), POLLIN, 0});
  int64_t due_ns = os::now_ns() + std::min(kLongestWaitMs, deadline.left_ms()) * os::kNsPerMs;
  for (const LinkDialer& dialer : dialers_) {
    polled.push_back(dialer.watched());
    due_ns = std::min(due_ns, dialer.due_ns());
  }
  listener_.watch(polled);
  const int64_t wait_ms = std::max<int64_t>((due_ns - os::now_ns() + os::kNsPerMs - 1) / os::kNsPerMs, 0);
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait_ms)) < 0 && errno != EINTR)
    throw make_error(status_of_errno(errno, DDP_ERROR_INTERNAL), "poll failed: %s%s", std::strerror(errno),
                     advice_of_errno(errno));
}

// A member that lost its connection before it got our proof comes again.
bool Connector::place_link(int32_t peer, int32_t lane, Connection connection) {
  Connection& slot = links_[static_cast<size_t>(peer) * static_cast<size_t>(lanes_) + static_cast<size_t>(lane)];
  if (!slot) --missing_;
  slot = std::move(connection);
  return true;
}

// Members that refuse come before silent ones, and members that we connect to before those that connect to us.
Connected Connector::unfinished(LinkResult result) const {
  const LinkDialer* worst = nullptr;
  for (const LinkDialer& dialer : dialers_)
    if (worst == nullptr || dialer.refused_ms() > worst->refused_ms()) worst = &dialer;
  if (worst != nullptr) return {result, worst->peer(), worst->trouble(), worst->error()};
  for (size_t at = 0; at < links_.size(); ++at) {
    const auto peer = static_cast<int32_t>(at / static_cast<size_t>(lanes_));
    if (peer != index_ && !links_[at]) return {result, peer, ""};
  }
  return {result, -1, ""};
}

std::vector<Connection> Connector::take(int32_t peer) {
  std::vector<Connection> taken;
  taken.reserve(static_cast<size_t>(lanes_));
  for (int32_t lane = 0; lane < lanes_; ++lane)
    taken.push_back(std::move(links_[static_cast<size_t>(peer) * static_cast<size_t>(lanes_) + static_cast<size_t>(lane)]));
  return taken;
}

}  // namespace ddp::socket
