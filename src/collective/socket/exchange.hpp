// SPDX-License-Identifier: Apache-2.0
// The direct exchange between members that are all linked with each other. Each member owns a slice of the array
// (slicing.hpp):
//
//   collect:  everybody sends its nodes of the sum for a slice to the slice's owner
//   sum:      the owner adds them in the order of the tree
//   give:     the owner sends the finished slice to everybody, where it lands in the array
//
// All-reduce has all phases, reduce-scatter ends before give, all-gather and broadcast are give alone. Where each
// member is one rank, a member sends and receives (n - 1) / n of the array in each phase, as in a ring; it adds 1 / n
// of it, and is one hop from everybody. The order of the sum is that of the tree, so the bits are those of cpu::reduce
// over all inputs.
//
// Slices are cut into segments. In step t a member adds segment t of its slice and sends it off, waits for the others'
// results of the step before, and begins step t + ahead. Everything that a wait needs was begun in an earlier step of
// somebody, so no cycle can arise.
//
// Needs: a header round, because sizes follow from the stamps, and what counts from the participations. The receives of the
// first steps are posted before it, so that what they wait for is sent as soon as its sender knows all headers.
// Threads: one at a time. Allocates nothing.
// Tested by unit/collective/exchange_test.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "collective/socket/links.hpp"
#include "collective/socket/reduce_input.hpp"
#include "collective/socket/slicing.hpp"

namespace ddp::socket {

/// The sum of the nodes of all members.
class TreeSum {
 public:
  explicit TreeSum(const Shares& shares);

  /// `participations`: by leaf. A node without a leaf that counts is not read.
  void begin(const cpu::ReduceRule& rule, const std::vector<collective::Participation>& participations) noexcept;
  /// The member's nodes of `count` elements, one behind the other.
  void set(int32_t member, const void* data, int64_t count) noexcept;
  /// The result as it travels. It may lie where a node of its element size does.
  void sum(void* result, int64_t count) const noexcept;

 private:
  const Shares& shares_;
  cpu::ReduceRule rule_;
  std::vector<cpu::SumPart> parts_;            // ascending
  std::vector<bool> counts_;                   // by part
  std::vector<std::vector<size_t>> parts_of_;  // by member: its nodes among the parts
};

/// Segments in flight from and to each member, and their messages. Only a third of it is ever touched if all segments lie
/// within pieces.
class ExchangeMemory {
 public:
  enum Kind { kPartIn = 0, kPartOut = 1, kResult = 2 };
  struct Messages {
    Links::Message part_in, part_out, result_in, result_out;
  };

  /// `ahead`: steps that are begun before the sum of the first of them. One more segment of each slice is in flight.
  void reserve(int32_t members, int64_t ahead);
  [[nodiscard]] int64_t ahead() const noexcept { return depth_ - 1; }
  [[nodiscard]] std::byte* slot(Kind kind, int32_t member, int64_t t) noexcept {
    return memory_.get() + (3 * index(member, t) + kind) * segment_;
  }
  [[nodiscard]] int64_t slot_bytes() const noexcept { return segment_; }
  [[nodiscard]] Messages& messages(int32_t member, int64_t t) noexcept {
    return messages_[static_cast<size_t>(index(member, t))];
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  [[nodiscard]] int64_t index(int32_t member, int64_t t) const noexcept { return int64_t{member} * depth_ + t % depth_; }

  std::unique_ptr<std::byte, Free> memory_;
  int64_t depth_ = 1;
  int64_t segment_ = 0;
  std::vector<Messages> messages_;
};

/// Steps whose first receives are posted before the header round. Equal on all members, who may call it off.
inline constexpr int64_t kPostedAhead = 2;

/// Which phases an exchange has.
struct Phases {
  bool collect = true;
  bool give = true;
};

/// The member's nodes of a span one behind the other, or where its only one lies.
[[nodiscard]] const void* nodes_as_they_travel(ReduceInput& mine, const std::vector<SumNode>& nodes, Span span,
                                               std::byte* scratch) noexcept;

/// One exchange, on the stack.
class Exchange {
 public:
  Exchange(Links& links, const Shares& shares, ExchangeMemory& memory, TreeSum& sum, ReduceInput& mine,
           const Slicing& slicing, Phases phases, int32_t level)
      : links_(links),
        shares_(shares),
        memory_(memory),
        sum_(sum),
        mine_(mine),
        slicing_(slicing),
        phases_(phases),
        level_(level) {}

  /// Before the header round: post what may be posted.
  void post_ahead();
  /// After it.
  void run();
  /// Instead, where the bucket is void: end what was posted.
  void call_off();

 private:
  [[nodiscard]] int64_t first(int64_t steps) const noexcept { return std::min(steps, slicing_.number()); }
  void receive_parts(int64_t t);
  void receive_result(int32_t peer, int64_t t);
  void begin(int64_t t);
  void add(int64_t t);
  void form(std::byte* result, Span span, int64_t t);
  void settle(int64_t t);
  void swap(int32_t peer, int64_t t);
  [[nodiscard]] std::byte* place(int32_t owner, int64_t t) noexcept;
  /// Calls fn(peer), each member starting with another, so that they do not all send to the same one.
  template <class Fn>
  void each_peer(const Fn& fn) const {
    for (int32_t step = 1; step < links_.size(); ++step) fn(links_.after(step));
  }

  Links& links_;
  const Shares& shares_;
  ExchangeMemory& memory_;
  TreeSum& sum_;
  ReduceInput& mine_;
  const Slicing& slicing_;
  Phases phases_;
  int32_t level_;       // of parts; results are one above
  int64_t posted_ = 0;  // steps whose first receives were posted before the header round
};

}  // namespace ddp::socket
