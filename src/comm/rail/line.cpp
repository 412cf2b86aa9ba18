#include "comm/rail/line.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace ddp {
namespace {

constexpr int64_t kForEverMs = INT32_MAX;    // 24 days
constexpr int64_t kFirstCauseMs = 500;       // how long a broken connection waits for the control plane's cause
constexpr int64_t kLargestStaggerMs = 250;   // by how much members further away are more patient, a step

void wait_for_cause(const Failure& failure) {
  const Deadline limit = Deadline::in_ms(kFirstCauseMs);
  while (!failure.broken() && !limit.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

Line::Line(Rail& rail, Control& control, Failure& failure, std::vector<int32_t> ranks, int64_t timeout_ms, bool counts)
    : rail_(rail), control_(control), failure_(failure), ranks_(std::move(ranks)), timeout_ms_(timeout_ms), counts_(counts) {
  if (rail.size() != size()) throw make_error(DDP_ERROR_INTERNAL, "a rail of %d members got %d ranks", rail.size(), size());
}

int64_t Line::patience_ms(const Message& message) const noexcept {
  if (timeout_ms_ <= 0) return kForEverMs;
  const int64_t stagger = std::min<int64_t>(kLargestStaggerMs, timeout_ms_ / (2 * int64_t{size()}));
  int64_t steps = message.peer < position() ? position() - 1 : last() - 1 - position();
  if (message.tag == Tag::kPart) steps = size();  // the peer may still wait for a frame along the line
  if (message.tag == Tag::kResult) steps = size() + 1;
  return std::min(timeout_ms_ + steps * stagger, kForEverMs);
}

void Line::connect(int32_t peer, std::string_view address) {
  const RailResult result = rail_.connect(peer, address);
  if (result != RailResult::kDone) explain(result, peer);
}

Line::Message Line::send(int32_t peer, Tag tag, const void* data, int64_t bytes) {
  if (tag >= Tag::kData) sent_bytes_ += bytes;
  Message message{0, peer, tag, true};
  const RailResult result = rail_.send(peer, static_cast<uint64_t>(tag), data, bytes, message.ticket);
  if (result != RailResult::kDone) explain(result, peer);
  return message;
}

Line::Message Line::receive(int32_t peer, Tag tag, void* data, int64_t bytes) {
  Message message{0, peer, tag, true};
  const RailResult result = rail_.receive(peer, static_cast<uint64_t>(tag), data, bytes, message.ticket);
  if (result != RailResult::kDone) explain(result, peer);
  return message;
}

void Line::wait(Message& message) {
  if (!message.open) return;
  message.open = false;
  const uint64_t number = counts_ && subject_ != nullptr ? subject_->sequence : 0;
  const CallState::Waiting waiting(control_.calls(), BlockedCall::Exchange::kCollective, number);
  const RailResult result = rail_.wait(message.ticket, patience_ms(message));
  if (result != RailResult::kDone) explain(result, message.peer);
}

Line::Message Line::try_send(Side side, Tag tag, const void* data, int64_t bytes) noexcept {
  Message message{0, peer(side), tag, false};
  message.open = rail_.send(peer(side), static_cast<uint64_t>(tag), data, bytes, message.ticket) == RailResult::kDone;
  return message;
}

Line::Message Line::try_receive(Side side, Tag tag, void* data, int64_t bytes) noexcept {
  Message message{0, peer(side), tag, false};
  message.open = rail_.receive(peer(side), static_cast<uint64_t>(tag), data, bytes, message.ticket) == RailResult::kDone;
  return message;
}

void Line::try_wait(Message& message, Deadline deadline) noexcept {
  if (message.open && !deadline.passed()) static_cast<void>(rail_.wait(message.ticket, deadline.left_ms()));
  message.open = false;
}

bool Line::said_goodbye(int32_t peer) const {
  const bool is_neighbour = peer == position() - 1 || peer == position() + 1;
  return is_neighbour && goodbye_probe_ && goodbye_probe_(peer < position() ? Side::kBelow : Side::kAbove);
}

void Line::explain(RailResult result, int32_t peer) {
  rail_.close();  // first, because what follows may throw: nobody writes into the caller's memory from here
  const std::string reason = rail_.error();
  failure_.check();
  const int32_t rank = ranks_[static_cast<size_t>(peer)];
  const std::string who = control_.member(rank).name();
  switch (result) {
    case RailResult::kTimedOut:
      give_up(Error(DDP_ERROR_TIMED_OUT, who + " did not take part in " + subject() + " within " + std::to_string(timeout_ms_) +
                                             " ms; " + control_.describe_progress(rank)));
    case RailResult::kAborted:
      wait_for_cause(failure_);
      give_up(Error(DDP_ERROR_ABORTED, "the group was aborted during " + subject()));
    case RailResult::kExhausted:  // nobody is to blame but this rank
      throw Error(DDP_ERROR_OUT_OF_MEMORY, reason);
    default:
      if (said_goodbye(peer)) neighbour_left(peer < position() ? Side::kBelow : Side::kAbove);
      wait_for_cause(failure_);
      give_up(Error(DDP_ERROR_PEER_FAILED, "the connection to " + who + " broke during " + subject() + " (" + reason + ")"));
  }
}

void Line::refuse(int32_t other_position, const Stamp& theirs, const Stamp& mine) {
  give_up(stamp_mismatch(control_, ranks_[static_cast<size_t>(other_position)], theirs,
                         ranks_[static_cast<size_t>(position())], mine));
}

void Line::neighbour_left(Side side) {
  rail_.close();
  wait_for_cause(failure_);
  give_up(Error(DDP_ERROR_ABORTED, control_.member(ranks_[static_cast<size_t>(peer(side))]).name() +
                                       " left the group before " + subject()));
}

void Line::give_up(const Error& cause) {
  rail_.close();
  if (failure_.set(cause)) control_.abort(cause);
  failure_.check();
  throw Error(cause);
}

}  // namespace ddp
