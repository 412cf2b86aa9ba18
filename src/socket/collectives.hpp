// SPDX-License-Identifier: Apache-2.0
// The collectives of members that are linked by sockets. Each opens with a header round (header_round.hpp); after it every
// member knows the calls of all of them, which ranks count, and their weights. The way of the array is a function of its
// size, the members and the options alone:
//
//   inline it is in the header's payload: each member has all inputs after the header, and adds them itself
//   short      the header's payload has a part for its owner, who adds; results go into receives that are always posted
//   whole      more than 16 members, few bytes: each member sends its nodes to all others, and adds all of them
//   direct     exchange.hpp: owners collect, add and give, segment by segment, with no copy where memory is one piece
//
// Promises: the stamp is compared by all before a result is written; if the bucket header is void nothing is written; when a
// call throws, no memory of the caller is touched any more.
// Threads: one at a time. Memory: segments in flight, allocated at the first direct exchange.
// Tested by unit/exchange/collectives_test.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "socket/exchange.hpp"
#include "socket/header_round.hpp"
#include "socket/links.hpp"
#include "socket/reduce_input.hpp"

namespace ddp::socket {

// The order in which the members exchange segments, decided equally by all of them. Many senders at a time keep every link
// busy at once, but their bursts meet at a switch, and one with little memory drops what it cannot hold. A drop is noticed
// where packets arrive behind a gap; that member reports it with its next header, and from the next collective on members
// take turns, for a number of exchanges. Then they try again. Each time they find gaps again, that number doubles. The state
// follows from the reports of all, so it is the same on all members.
enum class Order : int32_t {
  kBySegment,  // a segment with each member in turn; whatever has a slot is under way
  kByMember,   // many segments with one member, then with the next: few send to one at a time
};

class Congestion {
 public:
  static constexpr int64_t kFewest = 64;  // exchanges
  static constexpr int64_t kMost = 4096;
  static constexpr int64_t kPacketBytes = 1448;
  static constexpr int64_t kPacketsPerGap = 1024;

  /// Did this member's links lose more than what overtakes on a healthy network?
  [[nodiscard]] static constexpr bool is_loss(int64_t gaps, int64_t received_bytes) noexcept {
    return gaps > received_bytes / kPacketBytes / kPacketsPerGap;
  }

  /// Of the next exchange that is large enough to choose.
  [[nodiscard]] Order next() noexcept {
    if (left_ == 0) return Order::kBySegment;
    --left_;
    return Order::kByMember;
  }
  /// With the headers of a collective: has any member lost packets? Returns how many exchanges will take turns because of
  /// it.
  [[nodiscard]] int64_t learn(bool lost) noexcept {
    if (!lost || left_ > 0) return 0;
    left_ = patience_;
    patience_ = std::min(2 * patience_, kMost);
    return left_;
  }

 private:
  int64_t left_ = 0;  // exchanges by member
  int64_t patience_ = kFewest;
};

// The results of short exchanges (collectives.hpp): each member sends its slice of the sum to all others. A receive from
// each of them is always posted, so a result never waits for its receiver. A member that waits for none, because the bucket
// was void or it owns nothing, leaves the receive for the next exchange.
//
// A result follows the header round of its exchange, and a member sends its next header after close(). So one receive from
// each is enough.
// Threads: one at a time. Allocates when it is made; memory is touched as far as results reach.
class ResultRound {
 public:
  /// `most`: bytes of a member's results. 0: there are none.
  ResultRound(Links& links, int64_t most);
  /// Once, before the first use: post the receives.
  void arm() noexcept;

  /// Of a member, in the order of its slice. The own ones are put here.
  [[nodiscard]] std::byte* of(int32_t member) noexcept { return memory_.get() + member * most_; }
  /// The own results to all other members.
  void send(int64_t bytes, int32_t level);
  void wait(int32_t member, int32_t level);
  void close();

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  void arm(int32_t member) noexcept;

  Links& links_;
  int64_t most_;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<Links::Message> in_, out_;  // by member
};

/// Most bytes that a member sends so that each member adds everything.
inline constexpr int64_t kMostWhole = int64_t{64} << 10;
/// An array of at most this many bytes is sent whole with the header of any exchange.
inline constexpr int64_t kAlwaysInline = 4096;

/// The data of an exchange, its owners and its cuts: fixed for a bucket.
struct Schedule {
  Phases phases;
  Slicing slicing;
};
enum class Algorithm { kInline, kShort, kWhole, kDirect };

[[nodiscard]] Schedule make_schedule(const Shares& shares, const FlatOwnership& owned, const cpu::ReduceRule& rule,
                                     Phases phases, const SocketOptions& options);
/// Does each member add a part only?
[[nodiscard]] constexpr bool is_shared_out(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::kShort || algorithm == Algorithm::kDirect;
}
/// The way of an array of `count` elements with a bucket header of this many words.
[[nodiscard]] Algorithm algorithm_of(const Shares& shares, const Schedule& schedule, int64_t count,
                                     const cpu::ReduceRule& rule, size_t words, const SocketOptions& options) noexcept;

class Collectives {
 public:
  Collectives(Links& links, const Shares& shares, const SocketOptions& options);

  /// Before a collective, as HeaderRound::set_late.
  void set_late(const collective::Late& late) noexcept { header_.set_late(late); }

  void barrier(const collective::Stamp& stamp);
  /// On return `header` is that of all members.
  void run(const collective::Stamp& stamp, ReduceInput& mine, const Schedule& schedule, collective::BucketHeader& header);

  /// Bytes to one member, and bytes of another one; each member sends to one.
  void pass_on(const collective::Stamp& stamp, int32_t to, const Tensor& sent, int32_t from, const Tensor& received);

  /// No more collectives on this member: wait (at most until the deadline) until no member needs anything more.
  void leave(os::Deadline deadline) noexcept { header_.leave(deadline); }

 private:
  void swap_headers(collective::BucketHeader& header);
  [[nodiscard]] bool may_take_turns(const Schedule& schedule, const cpu::ReduceRule& rule) const noexcept;
  [[nodiscard]] Course course_of(const Schedule& schedule, const cpu::ReduceRule& rule) noexcept;
  [[nodiscard]] bool exchange(Exchange& direct, const Schedule& schedule, const cpu::ReduceRule& rule);
  void put_inline(ReduceInput& mine, const Schedule& schedule);
  void take_inline(ReduceInput& mine, const Schedule& schedule);
  void add_inline(ReduceInput& mine, const Schedule& schedule);
  void put_parts(ReduceInput& mine, const Schedule& schedule);
  void swap_parts(ReduceInput& mine, const Schedule& schedule);
  void add_parts(ReduceInput& mine, const Schedule& schedule);
  void swap_whole(ReduceInput& mine);
  /// Calls fn(span, elements of the payload before it) for each segment of the member's slice.
  template <class Fn>
  static void each_own(const Schedule& schedule, int32_t member, const Fn& fn) {
    int64_t before = 0;
    for (int64_t t = 0; t < schedule.slicing.number(); ++t) {
      const Span span = schedule.slicing.span(member, t);
      if (span.count > 0) fn(span, before);
      before += span.count;
    }
  }

  Links& links_;
  const Shares& shares_;
  SocketOptions options_;
  HeaderRound header_;
  TreeSum sum_;
  ExchangeMemory memory_;
  Congestion congestion_;
  ResultRound results_;
  std::vector<std::byte> inline_result_;
  std::vector<int64_t> part_at_;  // by member: bytes of its part that have been added
};

}  // namespace ddp::socket
