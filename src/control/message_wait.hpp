// SPDX-License-Identifier: Apache-2.0
// What the deadlock check knows of a rank's messages: the one that its thread waits for, and how far the streams to and from
// the other ranks have come.
//
// Messages are looked at only where the program has promised that one thread at a time uses the group (group option
// `one_thread`). Else a thread that the library has never seen might send later what the others wait for.
// Threads: any. Tested by unit/control/message_deadlock_test.cpp and conformance/message_deadlock_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::bootstrap {

/// In the place of a rank: any other one.
inline constexpr int32_t kAnyRank = -1;

/// Streams of one rank in its report, at most. A rank with more of them is not taken to wait for a message.
inline constexpr size_t kMostStreams = 256;

/// The two streams between this rank and another one, as this rank sees them.
struct StreamMark {
  int32_t peer = 0;
  uint64_t written = 0;  // bytes, since the group was made
  uint64_t read = 0;
  bool has_output = false;  // not written yet
  [[nodiscard]] bool operator==(const StreamMark&) const noexcept = default;
};

/// Of a rank, at one moment.
struct MessageState {
  /// The message that the only thread in a wait waits for.
  struct Awaited {
    bool any = false;         // there is such a thread
    int32_t peer = kAnyRank;  // that sends or receives it
    bool sends = false;       // it is sent
    int64_t tag = 0;
    [[nodiscard]] bool operator==(const Awaited&) const noexcept = default;
  };
  Awaited awaited;
  bool reads = false;               // what comes is read, although the program's thread may wait for something else
  std::vector<StreamMark> streams;  // that were used
  [[nodiscard]] bool operator==(const MessageState&) const noexcept = default;
};

class MessageLook {
 public:
  virtual ~MessageLook() = default;
  /// False: not now. Never waits for a lock. Any thread.
  [[nodiscard]] virtual bool look(MessageState& state) = 0;
};

}  // namespace ddp::bootstrap
