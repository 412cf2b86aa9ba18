// SPDX-License-Identifier: Apache-2.0
// A member's links to the other members: messages to each that it is linked with, and what becomes of a failure.
// Every failing call closes the endpoint first, so that no memory is touched when the error arrives at the caller.
//
// Which rank is named: the first cause of the group if there is one (a broken connection gives the control plane half a
// second to find the dead rank, because the peer that closed may be innocent); else the peer that was waited for. When one
// member is late, others wait for it directly or for a waiting member. Each message has a level: a wait for a message of
// level k is for a peer that may itself wait only for messages of lower levels. A higher level has a longer limit, so a
// member that waits for the late one directly names it first.
//
// A link on which bytes flow is slow, not dead: a wait is over when for timeout_ms no byte was received or sent on any link
// of this member, and none of those that it waits for in turn has moved data either (they report it over the control plane
// with their heartbeats). The end of that row is named.
//
// Threads: one at a time, except wake(). Allocates nothing after construction except error texts.
// Tested by unit/exchange/collectives_failure_test.cpp and process/gloo_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/failure.hpp"
#include "control/control.hpp"
#include "exchange/transport.hpp"
#include "exchange/waits.hpp"
#include "socket/endpoint.hpp"

namespace ddp::socket {

/// What a message is, so that streams never mix.
enum class Tag : uint64_t { kHeader = 1, kBucketHeader = 2, kPart = 4, kResult = 5, kShortResult = 6 };

class Links {
 public:
  /// `ranks[position]` is the group's rank at that position; `endpoint` has the position as its index. timeout_ms 0: wait
  /// for ever.
  Links(Endpoint& endpoint, bootstrap::Control& control, bootstrap::Failure& failure, std::vector<int32_t> ranks,
        int64_t timeout_ms, int32_t channel = 0, collective::Waits* waits = nullptr);

  [[nodiscard]] int32_t position() const noexcept { return endpoint_.index(); }
  [[nodiscard]] int32_t size() const noexcept { return static_cast<int32_t>(ranks_.size()); }
  [[nodiscard]] int32_t rank_at(int32_t position) const noexcept { return ranks_[static_cast<size_t>(position)]; }
  /// The member `steps` after this one, cyclically; negative: before this one.
  [[nodiscard]] int32_t after(int32_t steps) const noexcept { return (position() + size() + steps) % size(); }

  /// Make the link to the member at this position of these connections, which are the endpoint's from here on, with the data
  /// from its endpoint.
  void attach(int32_t peer, std::vector<Connection> connections, const std::string& address);

  /// Does a round trip take longer than 5 ms?
  [[nodiscard]] bool are_long() const noexcept { return long_; }

  /// A message in transfer. Waiting for it twice, or for none, has no effect.
  struct Message {
    Endpoint::Ticket ticket = 0;
    int32_t peer = 0;
    int32_t level = 0;
    bool open = false;
    bool is_header = false;
  };
  [[nodiscard]] Message send(int32_t peer, Tag tag, const void* data, int64_t bytes, int32_t level);
  [[nodiscard]] Message receive(int32_t peer, Tag tag, void* data, int64_t bytes, int32_t level);
  void wait(Message& message) { note(wait_for(message), {}); }
  /// The same in two steps, for a message that may name the rank for which its sender waited itself.
  [[nodiscard]] collective::Wait wait_for(Message& message);
  void note(const collective::Wait& wait, const collective::Late& late) noexcept;
  /// The member for which this one has waited longest since the last call.
  [[nodiscard]] collective::Late take_longest() noexcept { return std::exchange(longest_, {}); }

  // The same without consequences: for what may fail because a peer has left in good order.
  [[nodiscard]] Message try_send(int32_t peer, Tag tag, const void* data, int64_t bytes) noexcept;
  [[nodiscard]] Message try_receive(int32_t peer, Tag tag, void* data, int64_t bytes, int32_t level) noexcept;
  /// Did it complete in time?
  bool try_wait(Message& message, os::Deadline deadline) noexcept;

  /// Two ranks did different things: DIFFERENT_CALLS on all ranks.
  [[noreturn]] void refuse(int32_t position_a, const collective::Stamp& a, int32_t position_b, const collective::Stamp& b);
  /// A peer sent a goodbye where a collective was expected: ABORTED, or the first cause.
  [[noreturn]] void peer_left(int32_t peer);
  /// The group broke meanwhile: the first cause.
  [[noreturn]] void was_aborted();
  /// Break the group with this cause (or the first one, if there is one) and throw it.
  [[noreturn]] void give_up(const Error& cause);

  /// Asked when a connection broke, after the endpoint was closed: had this peer sent a goodbye?
  void set_goodbye_probe(std::function<bool(int32_t)> probe) { goodbye_probe_ = std::move(probe); }
  /// Levels are below this.
  void set_levels(int32_t levels) noexcept { levels_ = levels; }

  /// Packets that arrived behind a gap; 0 where it is not known.
  [[nodiscard]] int64_t gaps() noexcept { return endpoint_.gaps(); }
  /// Of all messages, with the carrier's frames.
  [[nodiscard]] int64_t sent_bytes() const noexcept { return sent_bytes_; }

  /// What is being done, for error texts. An exception closes the links, so that no data arrives in memory that its catcher
  /// may free.
  class Doing {
   public:
    Doing(Links& links, const collective::Stamp& subject) noexcept;
    ~Doing();
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;

   private:
    Links& links_;
    const int exceptions_;
  };

  /// The group broke: end waits. Any thread.
  void wake() noexcept { endpoint_.abort(); }

 private:
  [[nodiscard]] int64_t patience_ms(const Message& message) const noexcept;
  [[nodiscard]] LinkResult await(const Message& message) noexcept;
  /// What this rank waits for when it waits for a rank.
  struct Row {
    int32_t end = -1;   // the one that does not wait
    uint64_t mark = 0;  // changes while any of them moves anything
    [[nodiscard]] bool operator==(const Row&) const noexcept = default;
  };
  [[nodiscard]] Row row_behind(int32_t rank) const noexcept;
  void check_usable(int32_t peer);
  void check_unchanged();
  [[noreturn]] void explain(LinkResult result, const Message& message);
  [[nodiscard]] Error timed_out(const Message& message) const;
  [[nodiscard]] std::string subject() const {
    return subject_ != nullptr ? subject_->describe() : "the connection of the group";
  }

  Endpoint& endpoint_;
  bootstrap::Control& control_;
  bootstrap::Failure& failure_;
  std::vector<int32_t> ranks_;
  int64_t timeout_ms_;
  int32_t channel_;
  int32_t levels_ = 1;
  int64_t sent_bytes_ = 0;
  collective::Waits* const waits_;
  collective::Late longest_;
  bool long_ = false;
  bool exhausted_ = false;  // a receive that was posted ahead lacked memory
  const collective::Stamp* subject_ = nullptr;
  std::function<bool(int32_t)> goodbye_probe_;
};

}  // namespace ddp::socket
