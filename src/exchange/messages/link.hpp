// SPDX-License-Identifier: Apache-2.0
// One rank's messages to and from one other rank, as frames on the stream between them: what is still to be sent, and what
// is just coming. Small messages are sent at once, as far as the window goes, and wait in the match queue of the receiver;
// larger ones are offered, and their bytes go from the sender's memory to the receiver's.
// Nothing here waits: flush() and drain() do what the stream lets them.
// Threads: one at a time.
// Tested by unit/exchange/messenger_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "exchange/messages/match_queue.hpp"
#include "exchange/messages/streams.hpp"

namespace ddp::messages {

class Link {
 public:
  /// Both live longer.
  Link(int32_t peer, Streams& streams, MatchQueue& queue) : peer_(peer), streams_(streams), queue_(queue) {}

  void send(const RequestPtr& request);
  /// A receive has found this message of the peer.
  void hand_over(const ArrivedPtr& message, const RequestPtr& receive);
  /// A send, or a receive, that is given up. Of one that moves the rest of the stream is of no use: the group is broken.
  void forget(const RequestPtr& request);

  [[nodiscard]] bool has_output() const noexcept { return !output_.empty(); }
  /// Bytes on the streams to and from the peer so far.
  [[nodiscard]] uint64_t written() const noexcept { return all_written_; }
  [[nodiscard]] uint64_t read() const noexcept { return all_read_; }
  /// Is a message under way, or could one be that waits for the peer?
  [[nodiscard]] bool is_busy() const noexcept {
    return !output_.empty() || !offered_.empty() || !taken_.empty() || input_.left > 0 || filled_ > 0;
  }
  /// True if anything was sent.
  bool flush();
  /// True if anything was received.
  bool drain();

 private:
  /// A frame that is to be sent, with bytes of a message or without.
  struct Output {
    Frame frame;
    RequestPtr body;
  };
  /// The body that is coming.
  struct Input {
    RequestPtr to;    // NULL: it is kept, or nobody wants it
    ArrivedPtr kept;  // NULL: it is no small message that waits
    int64_t left = 0;
    int64_t done = 0;
    bool is_counted = false;  // by the window
  };

  void put(Frame::Kind kind, const Frame& about, const RequestPtr& body = nullptr);
  void finish_output();
  void begin(const Frame& frame);
  void begin_message(const Frame& frame);
  void begin_offer(const Frame& frame);
  void begin_data(const Frame& frame);
  void refused(const Frame& frame);
  [[nodiscard]] bool read_body();
  void finish_input();
  void deliver(const ArrivedPtr& message, const RequestPtr& receive);
  /// Small messages were received: the peer may send so much more.
  void give_credit(int64_t bytes);
  [[nodiscard]] bool fits(const RequestPtr& receive, const Frame& frame);

  [[nodiscard]] size_t take(std::byte* data, size_t count);

  const int32_t peer_;
  Streams& streams_;
  MatchQueue& queue_;

  uint64_t all_written_ = 0;
  uint64_t all_read_ = 0;
  std::deque<Output> output_;
  int64_t written_ = 0;  // of the first of them, with its frame
  int64_t window_ = kWindowBytes;
  uint64_t last_offer_ = 0;
  std::map<uint64_t, RequestPtr> offered_;  // sends that the peer has not asked for

  Frame frame_;
  size_t filled_ = 0;  // bytes of the frame that have come
  Input input_;
  int64_t owed_ = 0;                      // credit that the peer was not told of
  std::map<uint64_t, RequestPtr> taken_;  // receives whose bytes were asked for
};

}  // namespace ddp::messages
