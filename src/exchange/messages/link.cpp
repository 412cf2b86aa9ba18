// SPDX-License-Identifier: Apache-2.0
#include "exchange/messages/link.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "os/log.hpp"

namespace ddp::messages {
namespace {

constexpr int64_t kFrameBytes = sizeof(Frame);
constexpr int64_t kShare = int64_t{4} << 20;  // bytes that are received from one rank before it is another one's turn
constexpr int64_t kTellCredit = kWindowBytes / 4;

Frame frame_of(const Request& request) noexcept {
  return {Frame::Kind::kMessage, request.key.space, request.content.dtype, request.key.tag, request.content.count, 0};
}

[[nodiscard]] Error broken_frame() { return Error(DDP_ERROR_INTERNAL, "a message between ranks has no place here"); }

/// Of a receive that has found a message of another size or type; the sender says the same.
[[nodiscard]] Error wrong_content(const Key& key, int32_t sender, const Content& sent, const Content& expected) {
  return make_error(DDP_ERROR_MISMATCH,
                    "rank %d sends %s with tag %lld, and the receive is for %s: a message and its receive have one type and "
                    "number of elements",
                    sender, sent.describe().c_str(), static_cast<long long>(key.tag), expected.describe().c_str())
      .with({.ranks = {sender}, .bytes_expected = expected.bytes(), .bytes_got = sent.bytes()});
}

}  // namespace

void Link::put(Frame::Kind kind, const Frame& about, const RequestPtr& body) {
  streams_.open(peer_);
  Output& output = output_.emplace_back(Output{about, body});
  output.frame.kind = kind;
}

void Link::send(const RequestPtr& request) {
  streams_.open(peer_);
  Frame frame = frame_of(*request);
  const int64_t bytes = request->content.bytes();
  if (bytes <= kEagerBytes && window_cost(bytes) <= window_) {
    window_ -= window_cost(bytes);
    return put(Frame::Kind::kMessage, frame, request);
  }
  frame.offer = ++last_offer_;
  offered_.emplace(frame.offer, request);
  put(Frame::Kind::kOffer, frame);
}

void Link::hand_over(const ArrivedPtr& message, const RequestPtr& receive) {
  receive->source = peer_;
  if (message->offer == 0) {
    if (message->filled == message->content.bytes()) return deliver(message, receive);
    receive->moves = true;  // the rest is coming
    message->taker = receive;
    return;
  }
  Frame frame{Frame::Kind::kOffer, message->key.space,     message->content.dtype,
              message->key.tag,    message->content.count, message->offer};
  if (!fits(receive, frame)) return;
  receive->moves = true;
  taken_.emplace(message->offer, receive);
  put(Frame::Kind::kTake, frame);
}

// A whole small message that was kept.
void Link::deliver(const ArrivedPtr& message, const RequestPtr& receive) {
  give_credit(window_cost(message->content.bytes()));
  Frame frame{Frame::Kind::kMessage, message->key.space,     message->content.dtype,
              message->key.tag,      message->content.count, 0};
  if (!fits(receive, frame)) return;
  if (!message->data.empty() && receive->data != nullptr)
    std::memcpy(receive->data, message->data.data(), message->data.size());
  receive->moved = message->content.bytes();
  receive->finish();
}

// A sender that waits is told; one that does not has returned, and says it in its log.
bool Link::fits(const RequestPtr& receive, const Frame& frame) {
  if (receive->content == frame.content()) return true;
  Frame answer = frame;
  answer.dtype = receive->content.dtype;
  answer.count = receive->content.count;
  put(Frame::Kind::kRefuse, answer);
  receive->fail(wrong_content(frame.key(), peer_, frame.content(), receive->content));
  return false;
}

void Link::give_credit(int64_t bytes) {
  owed_ += bytes;
  if (owed_ < kTellCredit) return;
  Frame frame;
  frame.count = std::exchange(owed_, 0);
  put(Frame::Kind::kCredit, frame);
}

void Link::forget(const RequestPtr& request) {
  request->data = nullptr;
  std::erase_if(offered_, [&](const auto& entry) { return entry.second == request; });
}

// ---- out

bool Link::flush() {
  bool moved = false;
  while (!output_.empty()) {
    const Output& output = output_.front();
    const int64_t body_bytes = output.body != nullptr ? output.frame.content().bytes() : 0;
    if (output.body != nullptr && output.body->data == nullptr && body_bytes > 0) return moved;  // it was given up
    const auto* const head = reinterpret_cast<const std::byte*>(&output.frame);
    const int64_t head_at = std::min(written_, kFrameBytes), body_at = written_ - head_at;
    const std::byte* const body = body_bytes > 0 ? output.body->data + body_at : nullptr;
    const auto sent =
        static_cast<int64_t>(streams_.write(peer_, Bytes{head + head_at, static_cast<size_t>(kFrameBytes - head_at)},
                                            Bytes{body, static_cast<size_t>(body_bytes - body_at)}));
    if (sent == 0) return moved;
    moved = true;
    written_ += sent;
    all_written_ += static_cast<uint64_t>(sent);
    if (output.body != nullptr) output.body->moves = true, output.body->moved = std::max<int64_t>(written_ - kFrameBytes, 0);
    if (written_ == kFrameBytes + body_bytes) finish_output();
  }
  return moved;
}

void Link::finish_output() {
  if (const RequestPtr& body = output_.front().body; body != nullptr) body->finish();
  output_.pop_front();
  written_ = 0;
}

// ---- in

size_t Link::take(std::byte* data, size_t count) {
  const size_t got = streams_.read(peer_, data, count);
  all_read_ += got;
  return got;
}

bool Link::drain() {
  int64_t taken = 0;
  for (;;) {
    if (input_.left > 0) {
      const int64_t before = input_.left;
      if (!read_body()) return taken > 0;
      taken += before - input_.left;
      if (input_.left > 0) continue;
    }
    if (taken > kShare) return true;
    const size_t got = take(reinterpret_cast<std::byte*>(&frame_) + filled_, static_cast<size_t>(kFrameBytes) - filled_);
    if (got == 0) return taken > 0;
    filled_ += got;
    taken += static_cast<int64_t>(got);
    if (filled_ < static_cast<size_t>(kFrameBytes)) continue;
    filled_ = 0;
    begin(Frame(frame_));
  }
}

void Link::begin(const Frame& frame) {
  switch (frame.kind) {
    case Frame::Kind::kMessage: return begin_message(frame);
    case Frame::Kind::kOffer: return begin_offer(frame);
    case Frame::Kind::kData: return begin_data(frame);
    case Frame::Kind::kRefuse: return refused(frame);
    case Frame::Kind::kCredit: window_ = std::min(kWindowBytes, window_ + frame.count); return;
    case Frame::Kind::kTake: {
      const auto found = offered_.find(frame.offer);
      if (found == offered_.end()) return;  // it was given up
      put(Frame::Kind::kData, frame, found->second);
      found->second->moves = true;
      offered_.erase(found);
      return;
    }
  }
  throw broken_frame();
}

void Link::begin_message(const Frame& frame) {
  const int64_t bytes = frame.content().bytes();
  if (bytes < 0 || bytes > kEagerBytes) throw broken_frame();
  const RequestPtr receive = queue_.claim(peer_, frame.key());
  if (receive != nullptr) receive->source = peer_;
  input_ = Input{};
  if (receive != nullptr && receive->content == frame.content()) {
    receive->moves = true;
    input_.to = receive;
  } else {  // kept; or of another size than its receive, which is said when all of it has come
    input_.kept = std::make_shared<Arrived>(Arrived{peer_, frame.key(), frame.content(), 0, {}, 0, receive});
    input_.kept->data.resize(static_cast<size_t>(bytes));
    if (receive == nullptr) queue_.keep(input_.kept);
  }
  input_.left = bytes;
  input_.is_counted = true;
  if (bytes == 0) finish_input();
}

void Link::begin_offer(const Frame& frame) {
  const auto offer = std::make_shared<Arrived>(Arrived{peer_, frame.key(), frame.content(), frame.offer, {}, 0, nullptr});
  if (const RequestPtr receive = queue_.claim(peer_, frame.key()))
    hand_over(offer, receive);
  else
    queue_.keep(offer);
}

void Link::begin_data(const Frame& frame) {
  const auto found = taken_.find(frame.offer);
  if (found == taken_.end() || !(found->second->content == frame.content())) throw broken_frame();
  input_ = Input{found->second, nullptr, frame.content().bytes(), 0, false};
  taken_.erase(found);
  if (input_.left == 0) finish_input();
}

void Link::refused(const Frame& frame) {
  const auto found = offered_.find(frame.offer);
  if (found == offered_.end()) {
    if (frame.offer == 0)
      os::log(DDP_LOG_WARNING,
              "rank %d has received a message with tag %lld of this rank for %s, but it had another size or type, and its "
              "receive has failed",
              peer_, static_cast<long long>(frame.tag), frame.content().describe().c_str());
    return;
  }
  const RequestPtr request = found->second;
  offered_.erase(found);
  request->fail(
      make_error(DDP_ERROR_MISMATCH,
                 "this rank sends rank %d %s with tag %lld, and the receive there is for %s: a message and its "
                 "receive have one type and number of elements",
                 peer_, request->content.describe().c_str(), static_cast<long long>(request->key.tag),
                 frame.content().describe().c_str())
          .with({.ranks = {peer_}, .bytes_expected = frame.content().bytes(), .bytes_got = request->content.bytes()}));
}

// Into the receiver's memory, into that of a message that is kept, or nowhere, if the receive was given up.
bool Link::read_body() {
  std::array<std::byte, 4096> nowhere;
  std::byte* into = nowhere.data();
  auto room = static_cast<int64_t>(nowhere.size());
  if (input_.kept != nullptr) {
    into = input_.kept->data.data() + input_.done;
    room = input_.left;
  } else if (input_.to->data != nullptr) {
    into = input_.to->data + input_.done;
    room = input_.left;
  }
  const size_t got = take(into, static_cast<size_t>(std::min(room, input_.left)));
  input_.left -= static_cast<int64_t>(got);
  input_.done += static_cast<int64_t>(got);
  if (input_.kept != nullptr) input_.kept->filled = input_.done;
  if (input_.to != nullptr) input_.to->moved = input_.done;
  if (input_.left == 0) finish_input();
  return got > 0;
}

void Link::finish_input() {
  const Input input = std::exchange(input_, Input{});
  if (input.kept == nullptr) {
    if (input.is_counted) give_credit(window_cost(input.to->content.bytes()));
    input.to->finish();
  } else if (input.kept->taker != nullptr) {
    deliver(input.kept, input.kept->taker);
  }
}

}  // namespace ddp::messages
