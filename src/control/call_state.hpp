// SPDX-License-Identifier: Apache-2.0
// The public call of this rank, and the exchange that it waits for there. The control plane tells the others, so that ranks
// that wait for each other in different calls find out (deadlock.hpp).
//
// Exchanges are numbered, from 1 and the same on all ranks, because all make the same calls in the same order: the
// collectives of each channel, and the gathers of the control plane. No rank gets out of an exchange before all ranks have
// joined it.
//
// Cost: entering a call is one atomic addition and two stores; a wait is noted where it is about to sleep or to ask a
// socket. Nothing is allocated or sent from here: the control plane's thread looks now and then.
// Threads: a call is entered by the thread that makes it; waits are noted by that thread and by the thread of a queue that
// works for it; blocked() from any.
// Tested by unit/control/call_state_test.cpp.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "control/message_wait.hpp"
#include "control/user_call.hpp"
#include "os/clock.hpp"

namespace ddp::trace {
class Watch;
}  // namespace ddp::trace
namespace ddp::bootstrap {

/// Sequences of collectives that a group has at most: those of its models (group/channels.hpp), of its blocking calls, of
/// values that come late (group/value_lane.hpp), and of its requests.
inline constexpr int32_t kMostChannels = 11;
inline constexpr int32_t kRequestChannel = kMostChannels - 1;

/// What a rank waits in, and how far it has come. The caller's thread stays in the call until the exchange has all ranks.
struct BlockedCall {
  enum class Exchange : uint8_t { kCollective = 1, kGather = 2, kMessage = 3 };  // of a message, this rank's own number
  UserCall call = UserCall::kNone;
  Exchange exchange = Exchange::kCollective;
  uint64_t number = 0;                                // of the exchange that it waits in
  std::array<uint64_t, kMostChannels> collectives{};  // that this rank has joined, by channel; UINT64_MAX: a thread of the
                                                      // library joins what is started
  uint64_t gathers = 0;
  int32_t channel = 0;      // of the collective that it waits in
  bool settled = false;     // no other thread of this rank begins a message, or a collective call, while it waits;
  MessageState messages{};  // then this holds. What is awaited is what it waits for, if it waits for a message

  /// Of the sequence in which `waiting` waits: how many exchanges this rank has joined.
  [[nodiscard]] uint64_t joined_where(const BlockedCall& waiting) const noexcept {
    return waiting.exchange == Exchange::kGather ? gathers : collectives[static_cast<size_t>(waiting.channel)];
  }
  [[nodiscard]] bool operator==(const BlockedCall&) const noexcept = default;
};

/// Where a rank is in its program.
struct Whereabouts {
  int64_t pass = -1;
  int32_t bucket = -1;
  UserCall call = UserCall::kNone;  // the last that it made
  bool in_call = false;             // it has not returned from it
  int32_t awaits = -1;              // rank whose data it waits for over a link; -1: none
  uint64_t moved = 0;               // changes while data comes or goes
  int32_t awaits_message = -1;      // rank that it sends a message to or receives one from; -1: none, or any
};

class CallState {
 public:
  CallState() = default;
  CallState(const CallState&) = delete;
  CallState& operator=(const CallState&) = delete;

  /// This thread is in a public collective call. Inside another call of the same thread it does nothing: the outer one is
  /// what the user wrote.
  class In {
   public:
    /// `model`: the number of the model that it is about, 0: of none.
    In(CallState& state, UserCall call, uint64_t model = 0) noexcept : In(&state, call, model) {}
    /// NULL: does nothing.
    In(CallState* state, UserCall call, uint64_t model = 0) noexcept {
      const pthread_t self = pthread_self();
      if (state == nullptr || state->caller_.load(std::memory_order_relaxed) == self) return;
      state_ = state;
      first_ = state->inside_.fetch_add(1) == 0;
      if (!first_) return;
      state->call_.store(call, std::memory_order_relaxed);
      state->last_.store(call, std::memory_order_relaxed);
      state->model_.store(model, std::memory_order_relaxed);
      state->caller_.store(self, std::memory_order_release);
      if (state->watch() != nullptr) state->tell_watch(call);
    }
    ~In() {
      if (state_ == nullptr) return;
      if (first_) {
        if (state_->watch() != nullptr) state_->tell_watch(UserCall::kNone);
        state_->caller_.store(pthread_t{}, std::memory_order_relaxed);
        state_->call_.store(UserCall::kNone, std::memory_order_relaxed);
      }
      state_->inside_.fetch_sub(1);
    }
    In(const In&) = delete;
    In& operator=(const In&) = delete;

   private:
    CallState* state_ = nullptr;
    bool first_ = false;
  };

  /// What follows answers another call of the others than the one that this rank is in.
  class Answering {
   public:
    Answering(CallState& state, UserCall call) noexcept : state_(state), before_(state.call_.exchange(call)) {}
    ~Answering() { state_.call_.store(before_); }
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;

   private:
    CallState& state_;
    UserCall before_;
  };

  /// The thread that works on requests is in the one that this call has posted, as long as the object lives.
  class Requested {
   public:
    Requested(CallState& state, UserCall call) noexcept : state_(state) {
      state_.requested_.store(call, std::memory_order_relaxed);
    }
    ~Requested() { state_.requested_.store(UserCall::kNone, std::memory_order_relaxed); }
    Requested(const Requested&) = delete;
    Requested& operator=(const Requested&) = delete;

   private:
    CallState& state_;
  };

  /// This thread sends or receives a message, as other threads may that are in calls: no rank compares it with theirs.
  class InMessage {
   public:
    InMessage(CallState& state, UserCall call) noexcept : state_(state) {
      state.messages.enter();
      if (state.inside_.load(std::memory_order_relaxed) == 0) state.last_.store(call, std::memory_order_relaxed);
    }
    ~InMessage() { state_.messages.leave(); }
    InMessage(const InMessage&) = delete;
    InMessage& operator=(const InMessage&) = delete;

   private:
    CallState& state_;
  };

  /// This thread waits in an exchange, or for its progress queue, as long as the object lives. Number 0: in one that is not
  /// counted.
  class Waiting {
   public:
    Waiting(CallState& state, BlockedCall::Exchange exchange, uint64_t number, int32_t channel = 0) noexcept
        : Waiting(state, channel, number == 0 ? 0 : code(number, channel, static_cast<uint64_t>(exchange))) {}
    ~Waiting() { place_.store(0, std::memory_order_release); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   protected:
    Waiting(CallState& state, int32_t channel, uint64_t where) noexcept
        : place_(state.is_caller() ? state.caller_waits_ : state.queues_[static_cast<size_t>(channel)].waits) {
      place_.store(where, std::memory_order_release);
    }

   private:
    std::atomic<uint64_t>& place_;
  };
  class WaitingForQueue : public Waiting {
   public:
    explicit WaitingForQueue(CallState& state, int32_t channel = 0) noexcept
        : Waiting(state, channel, code(++state.drains_, channel, kForQueue)),
          stands_since_(state.queues_[static_cast<size_t>(channel)].stands_since) {
      stands_since_.store(os::now_ns(), std::memory_order_relaxed);
    }
    ~WaitingForQueue() { stands_since_.store(0, std::memory_order_relaxed); }

   private:
    std::atomic<int64_t>& stands_since_;
  };

  /// Of a wait of this thread: since when the program's thread has been waiting for its end. It has always, if it is this
  /// one; INT64_MAX: it computes, and another thread waits.
  [[nodiscard]] int64_t stands_since(int32_t channel) const noexcept {
    if (is_caller()) return 0;
    const int64_t since = queues_[static_cast<size_t>(channel)].stands_since.load(std::memory_order_relaxed);
    return since != 0 ? since : INT64_MAX;
  }

  /// This thread waits for data of this rank, or no more (-1); of several threads the last one counts.
  void await(int32_t rank) noexcept { awaits_.store(rank, std::memory_order_relaxed); }
  /// Data was received or sent: any number that is not 0.
  void data_moved(uint64_t number) noexcept { moved_.fetch_add(number, std::memory_order_relaxed); }
  [[nodiscard]] int32_t awaits() const noexcept { return awaits_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t moved() const noexcept { return moved_.load(std::memory_order_relaxed); }

  /// This rank joins the n-th collective of a channel, or gather. One thread at a time each.
  void join_collective(uint64_t number, int32_t channel = 0) noexcept {
    collectives_[static_cast<size_t>(channel)].store(number, std::memory_order_relaxed);
  }
  /// A thread of the library has exchanges of the channel to work on: it joins them without the caller.
  void set_queue_works(int32_t channel, bool works) noexcept {
    queues_[static_cast<size_t>(channel)].works.store(works, std::memory_order_release);
  }
  void join_gather(uint64_t number) noexcept { gathers_.store(number, std::memory_order_relaxed); }

  [[nodiscard]] UserCall call() const noexcept { return call_.load(std::memory_order_relaxed); }
  /// That has posted the request under way; kNone: none is.
  [[nodiscard]] UserCall requested() const noexcept { return requested_.load(std::memory_order_relaxed); }
  /// The last that was entered; kNone: none yet.
  [[nodiscard]] UserCall last() const noexcept { return last_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t model() const noexcept { return model_.load(std::memory_order_relaxed); }
  /// Is this the thread that is in the call? If not, it works on a backward pass.
  [[nodiscard]] bool is_caller() const noexcept { return caller_.load(std::memory_order_relaxed) == pthread_self(); }
  /// Threads that are in calls.
  [[nodiscard]] int32_t inside() const noexcept { return inside_.load() + messages.inside(); }

  /// Publishes this group's data for observers outside the process; NULL: none.
  [[nodiscard]] trace::Watch* watch() const noexcept { return watch_.load(std::memory_order_relaxed); }
  /// Once, while no thread is in a call.
  void set_watch(std::shared_ptr<trace::Watch> watch) noexcept;
  [[nodiscard]] const std::shared_ptr<trace::Watch>& shared_watch() const noexcept { return owned_watch_; }

  /// This thread sends or receives messages, or waits for one.
  MessageWaits messages;

  /// What the rank waits in, if one thread is in a call and can only wait for other ranks. What is returned was
  /// true at one moment.
  [[nodiscard]] std::optional<BlockedCall> blocked() const;

 private:
  [[nodiscard]] std::optional<BlockedCall> blocked_in_exchange() const;
  [[nodiscard]] std::optional<BlockedCall> blocked_in_message() const;
  void add_joined(BlockedCall& blocked) const noexcept;
  void add_messages(BlockedCall& blocked) const;
  void tell_watch(UserCall call) const noexcept;  // kNone: it has returned

  // A wait as one word: what for (a BlockedCall::Exchange, or kForQueue), the channel, the number.
  static constexpr uint64_t kKindBits = 2;
  static constexpr uint64_t kChannelBits = 4;
  static_assert(kMostChannels <= 1 << kChannelBits);
  static constexpr uint64_t kForQueue = 3;
  [[nodiscard]] static constexpr uint64_t code(uint64_t number, int32_t channel, uint64_t kind) noexcept {
    return (number << kChannelBits | static_cast<uint64_t>(channel)) << kKindBits | kind;
  }

  std::atomic<int32_t> inside_{0};
  std::atomic<pthread_t> caller_{};
  std::atomic<UserCall> call_{UserCall::kNone};
  std::atomic<UserCall> last_{UserCall::kNone};
  std::atomic<UserCall> requested_{UserCall::kNone};
  std::atomic<uint64_t> model_{0};
  std::array<std::atomic<uint64_t>, kMostChannels> collectives_{};
  std::atomic<uint64_t> gathers_{0};
  std::atomic<uint64_t> caller_waits_{0};  // code(); 0: does not wait
  /// A channel's progress queue.
  struct Queue {
    std::atomic<uint64_t> waits{0};        // code()
    std::atomic<bool> works{false};        // its thread has exchanges to work on
    std::atomic<int64_t> stands_since{0};  // the program, for its thread; 0: it does not
  };
  std::array<Queue, kMostChannels> queues_{};
  std::atomic<uint64_t> drains_{0};
  std::shared_ptr<trace::Watch> owned_watch_;
  std::atomic<trace::Watch*> watch_{nullptr};
  std::atomic<int32_t> awaits_{-1};
  std::atomic<uint64_t> moved_{0};
};

/// Looks at a rank at intervals, and returns the news for the other ranks: a long wait, and its end. News is what two looks
/// agree on: a wait that has just failed is still told when the cause of it comes, which names who waited.
class CallWatch {
 public:
  static constexpr int64_t kLookNs = 100'000'000;
  struct News {
    std::optional<BlockedCall> blocked;
  };
  [[nodiscard]] std::optional<News> look(const CallState& state, int64_t now_ns) noexcept;

 private:
  int64_t looked_ns_ = 0;
  std::optional<BlockedCall> seen_;
  std::optional<BlockedCall> told_;
};

}  // namespace ddp::bootstrap
