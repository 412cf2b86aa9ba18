// SPDX-License-Identifier: Apache-2.0
#include "socket/links.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace ddp::socket {
namespace {

constexpr int64_t kForEverMs = INT32_MAX;   // 24 days
constexpr int64_t kFirstCauseMs = 500;      // how long a broken connection waits for the control plane's cause
constexpr int64_t kLargestStaggerMs = 250;  // by how much a higher level is more patient
constexpr int64_t kFirstLookMs = 50;        // into a wait: do bytes flow?
constexpr int64_t kLookMs = 250;            // and then again and again
constexpr uint32_t kShortUs = 5000;         // a round trip of a short link

// The kernel has measured the connection's round trips since it was made; all ones: it has not.
bool is_long(int32_t descriptor) noexcept {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  const bool known = ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0;
  return known && info.tcpi_min_rtt != UINT32_MAX && info.tcpi_min_rtt > kShortUs;
}

void wait_for_cause(const bootstrap::Failure& failure) {
  const os::Deadline limit = os::Deadline::in_ms(kFirstCauseMs);
  while (!failure.broken() && !limit.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Not Error::about(): a recovery would take the rank for one that is lost, and it may only be late.
ErrorDetails about_rank(int32_t rank) { return {.ranks = {rank}}; }

}  // namespace

Links::Links(Endpoint& endpoint, bootstrap::Control& control, bootstrap::Failure& failure, std::vector<int32_t> ranks,
             int64_t timeout_ms, int32_t channel, collective::Waits* waits)
    : endpoint_(endpoint),
      control_(control),
      failure_(failure),
      ranks_(std::move(ranks)),
      timeout_ms_(timeout_ms),
      channel_(channel),
      waits_(waits) {
  if (endpoint.size() != size())
    throw make_error(DDP_ERROR_INTERNAL, "the links join %d members, but %d ranks are named", endpoint.size(), size());
}

Links::Doing::Doing(Links& links, const collective::Stamp& subject) noexcept
    : links_(links), exceptions_(std::uncaught_exceptions()) {
  links.subject_ = &subject;
}

Links::Doing::~Doing() {
  if (std::uncaught_exceptions() > exceptions_) links_.endpoint_.close();
  links_.subject_ = nullptr;
}

int64_t Links::patience_ms(const Message& message) const noexcept {
  if (timeout_ms_ <= 0) return kForEverMs;
  const int64_t stagger = std::min<int64_t>(kLargestStaggerMs, timeout_ms_ / (2 * int64_t{levels_}));
  return std::min(timeout_ms_ + message.level * stagger, kForEverMs);
}

void Links::attach(int32_t peer, std::vector<Connection> connections, const std::string& address) {
  for (const Connection& connection : connections) long_ = long_ || is_long(connection.socket.get());
  const LinkResult result = endpoint_.attach(peer, std::move(connections), address);
  if (result != LinkResult::kDone) explain(result, Message{0, peer});
}

Links::Message Links::send(int32_t peer, Tag tag, const void* data, int64_t bytes, int32_t level) {
  check_usable(peer);
  sent_bytes_ += bytes + endpoint_.frame_bytes();
  Message message{0, peer, level, true, tag == Tag::kHeader};
  const LinkResult result = endpoint_.send(peer, static_cast<uint64_t>(tag), data, bytes, message.ticket);
  if (result != LinkResult::kDone) explain(result, message);
  return message;
}

Links::Message Links::receive(int32_t peer, Tag tag, void* data, int64_t bytes, int32_t level) {
  check_usable(peer);
  Message message{0, peer, level, true, tag == Tag::kHeader};
  const LinkResult result = endpoint_.receive(peer, static_cast<uint64_t>(tag), data, bytes, message.ticket);
  sent_bytes_ += endpoint_.frame_bytes();  // the sender gets a notice
  if (result != LinkResult::kDone) explain(result, message);
  return message;
}

collective::Wait Links::wait_for(Message& message) {
  collective::Wait wait{rank_at(message.peer), channel_};
  if (!message.open) return wait;
  message.open = false;
  const uint64_t number = subject_ != nullptr ? subject_->sequence : 0;
  const bootstrap::CallState::Waiting waiting(control_.calls(), bootstrap::BlockedCall::Exchange::kCollective, number,
                                              channel_);
  wait.begin_ns = os::now_ns();
  const LinkResult result = await(message);
  wait.end_ns = os::now_ns();
  if (result != LinkResult::kDone) explain(result, message);
  return wait;
}

LinkResult Links::await(const Message& message) noexcept {
  bootstrap::CallState& calls = control_.calls();
  const int32_t rank = rank_at(message.peer);
  const int64_t patience = patience_ms(message);
  calls.await(rank);
  LinkResult result = endpoint_.wait(message.ticket, std::min(kFirstLookMs, patience));
  if (result == LinkResult::kTimedOut) {
    uint64_t moved = endpoint_.moved();
    Row row = row_behind(rank);
    os::Deadline deadline = os::Deadline::in_ms(patience);
    do {
      result = endpoint_.wait(message.ticket, std::clamp<int64_t>(deadline.left_ms(), 1, std::min(kLookMs, patience)));
      if (result != LinkResult::kTimedOut) break;
      const uint64_t here = endpoint_.moved();
      const Row now = row_behind(rank);
      if (here == moved && now == row) continue;
      if (here != moved) calls.data_moved(1);
      moved = here;
      row = now;
      deadline = os::Deadline::in_ms(patience);
    } while (!deadline.passed());
  }
  if (result == LinkResult::kDone) {
    calls.data_moved(1);
    calls.await(-1);
  }
  return result;
}

Links::Row Links::row_behind(int32_t rank) const noexcept {
  Row row{rank};
  for (int32_t step = 0; step < size(); ++step) {
    const bootstrap::Whereabouts where = control_.last_sign(row.end).where;
    row.mark = row.mark * 31 + where.moved;
    if (where.awaits < 0 || where.awaits >= control_.size() || where.awaits == control_.rank() || where.awaits == row.end)
      break;
    row.end = where.awaits;
  }
  return row;
}

void Links::note(const collective::Wait& wait, const collective::Late& late) noexcept {
  const int64_t ns = wait.end_ns - wait.begin_ns;
  if (ns > longest_.ns) longest_ = late.ns * 2 > ns ? collective::Late{late.rank, ns} : collective::Late{wait.rank, ns};
  if (waits_ != nullptr && ns > 0) waits_->note(wait, late);
}

Links::Message Links::try_send(int32_t peer, Tag tag, const void* data, int64_t bytes) noexcept {
  Message message{0, peer, 0, false, tag == Tag::kHeader};
  message.open = endpoint_.send(peer, static_cast<uint64_t>(tag), data, bytes, message.ticket) == LinkResult::kDone;
  return message;
}

Links::Message Links::try_receive(int32_t peer, Tag tag, void* data, int64_t bytes, int32_t level) noexcept {
  Message message{0, peer, level, false, tag == Tag::kHeader};
  const LinkResult result = endpoint_.receive(peer, static_cast<uint64_t>(tag), data, bytes, message.ticket);
  sent_bytes_ += endpoint_.frame_bytes();
  message.open = result == LinkResult::kDone;
  exhausted_ = exhausted_ || result == LinkResult::kExhausted;
  return message;
}

bool Links::try_wait(Message& message, os::Deadline deadline) noexcept {
  const bool open = std::exchange(message.open, false);
  return open && !deadline.passed() && endpoint_.wait(message.ticket, deadline.left_ms()) == LinkResult::kDone;
}

// A post that lacked memory may have been made by half, so nothing that follows it can be trusted.
void Links::check_usable(int32_t peer) {
  if (exhausted_) explain(LinkResult::kExhausted, Message{0, peer});
}

// A rank that has not sent its header did not take part; of one that has, the data is missing.
Error Links::timed_out(const Message& message) const {
  const int32_t rank = rank_at(message.peer), late = row_behind(rank).end;
  const std::string who = control_.member(late).name();
  const std::string known = " within " + std::to_string(timeout_ms_) + " ms; " + control_.describe_progress(late);
  if (late != rank)
    return Error(DDP_ERROR_TIMED_OUT, who + " holds up " + subject() + ": " + control_.member(rank).name() +
                                          " waits for it, and no data has come" + known)
        .with(about_rank(late));
  return Error(DDP_ERROR_TIMED_OUT, message.is_header ? who + " did not take part in " + subject() + known
                                                      : "no data of " + who + " has come for " + subject() + known)
      .with(about_rank(late));
}

void Links::explain(LinkResult result, const Message& message) {
  const int32_t peer = message.peer;
  endpoint_.close();  // first, because the rest may throw: from here on no data is written into the caller's memory
  const std::string reason = endpoint_.error();
  failure_.check();
  check_unchanged();
  const int32_t rank = rank_at(peer);
  const std::string who = control_.member(rank).name();
  switch (result) {
    case LinkResult::kTimedOut: give_up(timed_out(message));
    case LinkResult::kAborted: was_aborted();
    case LinkResult::kExhausted:  // only this rank is to blame
      throw Error(DDP_ERROR_OUT_OF_MEMORY, reason + advice_in(reason));
    default:
      if (goodbye_probe_ && goodbye_probe_(peer)) peer_left(peer);
      wait_for_cause(failure_);
      give_up(Error(DDP_ERROR_PEER_FAILED, "the connection to " + who + " broke during " + subject() + " (" + reason + ")")
                  .with(about_rank(rank)));
  }
}

// No other rank has a better cause. The link that broke may be another one, which the peer closed because of this one.
void Links::check_unchanged() {
  const int32_t peer = endpoint_.changed();
  if (peer < 0) return;
  give_up(Error(DDP_ERROR_PEER_FAILED, "other bytes came from " + control_.member(rank_at(peer)).name() +
                                           " than it has sent, during " + subject() + " (" + endpoint_.error() +
                                           "): somebody or something changes them on their way")
              .with(about_rank(rank_at(peer))));
}

void Links::refuse(int32_t position_a, const collective::Stamp& a, int32_t position_b, const collective::Stamp& b) {
  give_up(collective::stamp_mismatch(control_, rank_at(position_a), a, rank_at(position_b), b));
}

void Links::peer_left(int32_t peer) {
  endpoint_.close();
  wait_for_cause(failure_);
  give_up(Error(DDP_ERROR_ABORTED, control_.member(rank_at(peer)).name() + " left the group before " + subject())
              .with(about_rank(rank_at(peer))));
}

void Links::was_aborted() {
  endpoint_.close();
  wait_for_cause(failure_);
  give_up(Error(DDP_ERROR_ABORTED, "the group was aborted during " + subject()));
}

void Links::give_up(const Error& cause) {
  endpoint_.close();
  if (failure_.set(cause)) control_.abort(cause);
  failure_.check();
  throw Error(cause);
}

}  // namespace ddp::socket
