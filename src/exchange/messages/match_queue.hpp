// SPDX-License-Identifier: Apache-2.0
// Which message is for which receive: messages that have come and that no receive was posted for, and receives for which
// none has come. A message is for the first receive, in the order in which they were posted, that names its sender (or any)
// and its key; a receive gets the first message of those that have come. So messages of one rank with one key are received
// in the order in which they were sent.
// Pure: no transport, no clock, no threads. Cost: as many steps as there are messages, or receives.
// Threads: one at a time.
// Tested by unit/exchange/match_queue_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "exchange/messages/frame.hpp"

namespace ddp::messages {

/// In the place of a sender: any rank.
inline constexpr int32_t kAnySource = -1;

/// A message of this rank under way: one that it sends, or receives.
struct Request {
  bool sends = false;
  int32_t peer = 0;  // or kAnySource
  Key key;
  Content content;
  std::byte* data = nullptr;  // sent: only read. NULL once it was given up

  bool done = false;
  bool moves = false;            // bytes of it have been sent or received, or will be at any moment
  int32_t source = -1;           // of a receive: the rank that the message is from, once that is known
  int64_t moved = 0;             // bytes so far
  std::optional<Error> error{};  // it has failed alone, and the group is whole

  void finish() noexcept { done = true; }
  void fail(Error why) noexcept {
    error = std::move(why);
    done = true;
  }
};
using RequestPtr = std::shared_ptr<Request>;

/// A message that no receive was posted for when it came.
struct Arrived {
  int32_t source = 0;
  Key key;
  Content content;
  uint64_t offer = 0;           // its number, if it was only offered
  std::vector<std::byte> data;  // else its bytes,
  int64_t filled = 0;           // of which so many have come
  RequestPtr taker;             // that found it before all had come
};
using ArrivedPtr = std::shared_ptr<Arrived>;

class MatchQueue {
 public:
  /// The receive that this message is for, which waits no longer; NULL: keep the message.
  [[nodiscard]] RequestPtr claim(int32_t source, const Key& key);
  /// The message for this receive, which is kept no longer; NULL: post the receive. `source` may be kAnySource.
  [[nodiscard]] ArrivedPtr take(int32_t source, const Key& key);

  void keep(ArrivedPtr message) { messages_.push_back(std::move(message)); }
  void post(RequestPtr receive) { receives_.push_back(std::move(receive)); }
  /// A posted receive is given up; nothing happens if it has found its message.
  void withdraw(const RequestPtr& receive);

  /// "tag 3, tag 4 and 2 more": what has come from this rank and was not received, for error texts; "" if nothing has.
  [[nodiscard]] std::string describe_kept(int32_t source, Space space) const;

 private:
  std::deque<RequestPtr> receives_;
  std::deque<ArrivedPtr> messages_;
};

}  // namespace ddp::messages
