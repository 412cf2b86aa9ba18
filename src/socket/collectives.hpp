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

#include <cstddef>
#include <cstdint>
#include <vector>

#include "socket/congestion.hpp"
#include "socket/exchange.hpp"
#include "socket/header_round.hpp"
#include "socket/links.hpp"
#include "socket/reduce_input.hpp"
#include "socket/result_round.hpp"

namespace ddp::socket {

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
