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

#include "core/dtype.hpp"
#include "core/error.hpp"
#include "ddp/types.h"

namespace ddp::messages {

// How messages lie on a stream between two ranks: frames, some of them with the bytes of a message behind.
//
//   message   a small message, with its bytes
//   offer     a large one: its bytes come when the receiver asks for them
//   take      the receiver asks for what was offered
//   refuse    the receiver expects another size or type
//   data      the bytes of what was taken
//   credit    small messages have been received: so many bytes more may be sent without being asked for
//
// Plain bytes; both ends are processes of one version of the library (limits::kProtocol).
/// Messages of the program, of blocking collective calls and of posted ones are not taken for each other.
enum class Space : uint16_t { kProgram = 1, kCollective, kRequest };

/// What a receive is compared by, beside the sender.
struct Key {
  Space space = Space::kProgram;
  int64_t tag = 0;
  [[nodiscard]] bool operator==(const Key&) const noexcept = default;
};

struct Content {
  ddp_dtype dtype = DDP_U8;
  int64_t count = 0;  // elements
  [[nodiscard]] int64_t bytes() const noexcept { return count * dtype_size(dtype); }
  [[nodiscard]] bool operator==(const Content&) const noexcept = default;
  /// "12 F32 elements"
  [[nodiscard]] std::string describe() const { return std::to_string(count) + " " + dtype_name(dtype) + " elements"; }
};

struct Frame {
  enum class Kind : uint16_t { kMessage = 1, kOffer, kTake, kRefuse, kData, kCredit };
  Kind kind = Kind::kMessage;
  Space space = Space::kProgram;
  ddp_dtype dtype = DDP_U8;
  int64_t tag = 0;
  int64_t count = 0;   // elements; of a credit: bytes
  uint64_t offer = 0;  // number of the offer, on this stream

  [[nodiscard]] Key key() const noexcept { return {space, tag}; }
  [[nodiscard]] Content content() const noexcept { return {dtype, count}; }
};
static_assert(sizeof(Frame) == 32);

/// Bytes of the largest message that is sent without being asked for.
inline constexpr int64_t kEagerBytes = int64_t{64} << 10;
/// Bytes, with frames, that one rank sends to one other without being asked for, until it hears that some were received.
/// Beyond, small messages are offered too, and their sender waits.
inline constexpr int64_t kWindowBytes = int64_t{1} << 20;
/// What a small message counts for.
[[nodiscard]] constexpr int64_t window_cost(int64_t bytes) noexcept { return bytes + static_cast<int64_t>(sizeof(Frame)); }

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

  [[nodiscard]] bool has_receives() const noexcept { return !receives_.empty(); }

  /// "tag 3, tag 4 and 2 more": what has come from this rank and was not received, for error texts; "" if nothing has.
  [[nodiscard]] std::string describe_kept(int32_t source, Space space) const;

 private:
  std::deque<RequestPtr> receives_;
  std::deque<ArrivedPtr> messages_;
};

}  // namespace ddp::messages
