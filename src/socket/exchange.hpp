// SPDX-License-Identifier: Apache-2.0
// The direct exchange between members that are all linked with each other. Each member owns a slice of the array
// (slicing.hpp):
//
//   collect: each member sends its nodes of the sum for a slice to the slice's owner
//   sum:      the owner adds them in the order of the tree
//   give: the owner sends the finished slice to all, directly into the array
//
// All-reduce has all phases, reduce-scatter ends before give, all-gather and broadcast are give alone. Where each
// member is one rank, a member sends and receives (n - 1) / n of the array in each phase, as in a ring; it adds 1 / n
// of it, and is one hop from all others. The order of the sum is that of the tree, so the bits are those of cpu::reduce
// over all inputs.
//
// Slices are cut into segments, which all members exchange in one order (congestion.hpp): in each turn a member sends to one
// and receives from another. It adds a segment when the last part of it has come. The messages of a turn were posted in an
// earlier turn of some member, so no cycle can arise.
//
// Needs: a header round, because sizes follow from the stamps, and what counts from the participations. The receives of the
// first steps are posted before it, so that their data is sent as soon as its sender knows all headers.
// Threads: one at a time. Allocates nothing; ExchangeMemory does, for the first exchange of either order.
// Tested by unit/exchange/exchange_test.cpp and unit/exchange/turns_test.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "socket/links.hpp"
#include "socket/reduce_input.hpp"
#include "socket/slicing.hpp"

namespace ddp::socket {

/// The sum of the nodes of all members.
class TreeSum {
 public:
  explicit TreeSum(const Shares& shares);

  /// `participations`: by leaf. A node without a leaf that counts is not read.
  void begin(const cpu::ReduceRule& rule, const std::vector<collective::Participation>& participations) noexcept;
  /// The member's nodes of `count` elements, contiguous.
  void set(int32_t member, const void* data, int64_t count) noexcept;
  /// The result as it is sent. It may share the place of a node of its element size.
  void sum(void* result, int64_t count) const noexcept;

 private:
  const Shares& shares_;
  cpu::ReduceRule rule_;
  std::vector<cpu::SumPart> parts_;            // ascending
  std::vector<bool> counts_;                   // by part
  std::vector<std::vector<size_t>> parts_of_;  // by member: its nodes among the parts
};

/// Segments in flight from and to each member, and their messages. Only a third of it is ever touched if all segments are
/// within pieces.
class ExchangeMemory {
 public:
  enum Kind { kPartIn = 0, kPartOut = 1, kResult = 2 };
  struct Messages {
    Links::Message part_in, part_out, result_in, result_out;
  };

  /// Before each exchange. `depth`: segments of each slice that are in flight. Allocates when it is more than ever.
  void reserve(int32_t members, int64_t depth);
  [[nodiscard]] std::byte* slot(Kind kind, int32_t member, int64_t t) noexcept {
    return memory_.get() + (3 * index(member, t) + kind) * segment_;
  }
  [[nodiscard]] Messages& messages(int32_t member, int64_t t) noexcept {
    return messages_[static_cast<size_t>(index(member, t))];
  }
  /// What this member sends as the result of segment t.
  [[nodiscard]] const void* result(int64_t t) const noexcept { return results_[static_cast<size_t>(t % depth_)]; }
  void set_result(int64_t t, const void* data) noexcept { results_[static_cast<size_t>(t % depth_)] = data; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  [[nodiscard]] int64_t index(int32_t member, int64_t t) const noexcept { return int64_t{member} * depth_ + t % depth_; }

  std::unique_ptr<std::byte, Free> memory_;
  int64_t depth_ = 0;
  int64_t most_ = 0;  // that there is memory for
  int64_t segment_ = 0;
  std::vector<Messages> messages_;
  std::vector<const void*> results_;
};

/// Steps whose first receives are posted before the header round; in turns, messages. Equal on all members, who may call it
/// off.
inline constexpr int64_t kPostedAhead = 2;

/// Which phases an exchange has.
struct Phases {
  bool collect = true;
  bool give = true;
};

/// The member's nodes of a span, contiguous, or the place of its only one.
[[nodiscard]] const void* nodes_as_they_travel(ReduceInput& mine, const std::vector<SumNode>& nodes, Span span,
                                               std::byte* scratch) noexcept;

/// One exchange, on the stack.
class Exchange {
 public:
  Exchange(Links& links, const Shares& shares, ExchangeMemory& memory, TreeSum& sum, ReduceInput& mine,
           const Slicing& slicing, Phases phases, const Course& course, int32_t level)
      : links_(links),
        shares_(shares),
        memory_(memory),
        sum_(sum),
        mine_(mine),
        slicing_(slicing),
        phases_(phases),
        course_(course),
        level_(level),
        received_(first()),
        sent_(first()) {}

  [[nodiscard]] bool by_member() const noexcept { return course_.burst > 1; }
  /// Before the header round: post what may be posted.
  void post_ahead();
  /// After it.
  void run();
  /// Instead, where the bucket is void: end what was posted.
  void call_off();

 private:
  /// A message to one member and one from another: each member sends to the one `distance` after it. All members finish
  /// turns in this order: round 2 s has the parts of step s, the next round the results of step s - 1. A step has `burst`
  /// segments of each slice.
  struct Turn {
    int64_t round = 0;
    int32_t distance = 1;
    int32_t piece = 0;
    int32_t burst = 1;
    [[nodiscard]] bool operator==(const Turn&) const noexcept = default;
    [[nodiscard]] bool is_of_parts() const noexcept { return round % 2 == 0; }
    [[nodiscard]] int64_t step() const noexcept { return is_of_parts() ? round / 2 : (round - 3) / 2; }
    [[nodiscard]] int64_t segment() const noexcept { return step() * burst + piece; }
    [[nodiscard]] bool is_with_the_same(const Turn& other) const noexcept {
      return round == other.round && distance == other.distance;
    }
    void advance(int32_t members) noexcept {
      if (++piece < burst) return;
      piece = 0;
      if (++distance < members) return;
      distance = 1;
      ++round;
    }
  };
  [[nodiscard]] Turn first() const noexcept { return Turn{0, 1, 0, course_.burst}; }
  [[nodiscard]] int64_t rounds() const noexcept { return 2 * ((slicing_.number() + course_.burst - 1) / course_.burst) + 2; }
  [[nodiscard]] bool takes_place(const Turn& turn) const noexcept {
    if (links_.size() == 1) return false;
    return turn.is_of_parts() ? phases_.collect : phases_.give && turn.step() >= 0;
  }
  [[nodiscard]] bool may_receive(const Turn& now) const noexcept;
  [[nodiscard]] bool may_send() const noexcept;
  [[nodiscard]] int64_t bytes_of(const Turn& turn, int32_t sender, int32_t owner) const noexcept;
  [[nodiscard]] std::byte* place(int32_t owner, int64_t t) noexcept;
  void receive_next();
  void send_next();
  void post(const Turn& now);
  void form(int64_t t);
  void finish(const Turn& turn);

  Links& links_;
  const Shares& shares_;
  ExchangeMemory& memory_;
  TreeSum& sum_;
  ReduceInput& mine_;
  const Slicing& slicing_;
  Phases phases_;
  Course course_;
  int32_t level_;          // of parts; results are one above
  Turn received_, sent_;   // the first that is not posted
  int64_t receiving_ = 0;  // messages under way
  int64_t sending_ = 0;
  int64_t formed_ = 0;  // segments of the own slice
};

}  // namespace ddp::socket
