// SPDX-License-Identifier: Apache-2.0
// What the deadlock check knows of a rank's messages: the one that its thread waits for, and how far the streams to and from
// the other ranks have come.
//
// Messages are looked at only where the program has promised that one thread at a time uses the group (group option
// `one_thread`). Else a thread that the library has never seen might send later what the others wait for.
// Threads: any. Tested by unit/control/message_deadlock_test.cpp and conformance/message_deadlock_test.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "control/user_call.hpp"

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

/// Fills in the state. False: not now. Never waits for a lock. Any thread.
using MessageLook = std::function<bool(MessageState&)>;

/// The messages of a rank, as a part of its CallState.
class MessageWaits {
 public:
  /// This thread waits for a message without a limit of its own, in this call.
  class Waiting {
   public:
    Waiting(MessageWaits& waits, UserCall call) noexcept : waits_(waits) {
      const uint64_t number = waits_.numbered_.fetch_add(1) + 1;
      waits_.now_.store(number << kCallBits | static_cast<uint64_t>(call));
    }
    ~Waiting() { waits_.now_.store(0); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    MessageWaits& waits_;
  };

  /// The program has promised that one thread at a time uses the group: its waits for messages are looked at from now on.
  /// Empty: no more, and none is being looked at when this returns.
  void set_look(MessageLook look) noexcept {
    const std::lock_guard lock(mutex_);
    look_.swap(look);
  }
  /// Posted sends whose tensors are not ready: a thread of the library begins them.
  void set_unsent(size_t sends) noexcept { unsent_.store(sends); }
  /// A thread waits for a message to or from this rank, or no more, or from any (-1); of several threads the last one
  /// counts.
  void await(int32_t rank) noexcept { awaits_.store(rank, std::memory_order_relaxed); }
  [[nodiscard]] int32_t awaits() const noexcept { return awaits_.load(std::memory_order_relaxed); }
  /// Threads that send or receive.
  void enter() noexcept { inside_.fetch_add(1); }
  void leave() noexcept { inside_.fetch_sub(1); }
  [[nodiscard]] int32_t inside() const noexcept { return inside_.load(); }

  /// The present wait, a number that no other one has; 0: no thread waits.
  [[nodiscard]] uint64_t now() const noexcept { return now_.load(); }
  [[nodiscard]] static constexpr UserCall call_of(uint64_t wait) noexcept {
    return static_cast<UserCall>(wait & ((uint64_t{1} << kCallBits) - 1));
  }
  /// False: there is no promise, or something may begin without the program's thread, or it cannot be said now. A posted
  /// send that was begun is among the messages that the look sees, so it is asked afterwards.
  [[nodiscard]] bool look(MessageState& state) const {
    const std::lock_guard lock(mutex_);
    return look_ && unsent_.load() == 0 && look_(state);
  }

 private:
  static constexpr uint64_t kCallBits = 16;
  std::atomic<int32_t> inside_{0};
  std::atomic<uint64_t> numbered_{0};
  std::atomic<uint64_t> now_{0};
  std::atomic<size_t> unsent_{0};
  std::atomic<int32_t> awaits_{-1};
  mutable std::mutex mutex_;  // guards what follows
  MessageLook look_;
};

}  // namespace ddp::bootstrap
