// Collectives over a line of members that each know their two neighbours only. The sum is formed exactly in the order of the line:
//
//   up:    0 --x0--> 1 --x0+x1--> 2 --x0+x1+x2--> 3     accumulator type (the first hop: elements as they are)
//   down:  0 <------ 1 <--------- 2 <------------ 3     the finished result, rounded once
//
// A large array is cut into segments that follow each other, so both directions of every link are busy at once. Each link carries the
// array once each way, as in a ring, but the order of addition does not depend on the segment, so the bits are those of cpu::reduce
// over all inputs. Nothing is copied that lies in one piece: the first member sends from the gradient, results land in it.
//
// One thread drives both directions in a fixed order: member k takes segment t up, then segment t - lag(k) down, lag(k) = 2 (last - k)
// being about the time a segment needs to come back. Because lag falls towards the last, every wait is for something that its
// neighbour does earlier in its own order, so no cycle can arise; README.md of this folder has the argument.
//
// Where all members are linked with each other, large reductions and gathers leave the line for a direct exchange (exchange.hpp), after a
// sweep along the line.
//
// Promises: the stamp is compared by all before a result is written; if any member's note is incomplete nothing is written; when a
// call throws, no memory of the caller is touched any more. Cost: 2 (n - 1) hops plus the array once up and once down each link.
// Threads: one at a time. Memory: segments in flight, allocated at the first large reduction of each way.
// Tested by unit/comm/chain_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/rail/contribution.hpp"
#include "comm/rail/exchange.hpp"
#include "comm/rail/line.hpp"
#include "comm/rail/segments.hpp"
#include "comm/rail/sweep.hpp"

namespace ddp {

class Chain {
 public:
  Chain(Line& line, const ChainOptions& options);

  void barrier(const Stamp& stamp);
  /// The sum of all members' contributions; on return `note` is the OR over all members.
  void reduce(const Stamp& stamp, Contribution& mine, Note& note);
  /// Every member's `part_bytes` bytes, in the order of the line. `mine` may lie at its place in `all`.
  void all_gather(const Stamp& stamp, const std::byte* mine, std::byte* all, int64_t part_bytes);
  void broadcast(const Stamp& stamp, std::byte* data, int64_t bytes, int32_t root_position);

  /// Does a reduction of so many elements by this rule take the direct exchange?
  [[nodiscard]] bool is_direct(int64_t count, const cpu::ReduceRule& rule) const noexcept {
    return goes_direct(count * dtype_size(rule.travel_dtype()), line_.size(), options_);
  }

  /// No more collectives on this member: wait (at most until the deadline) until no member needs anything more.
  void leave(Deadline deadline) noexcept { sweep_.leave(deadline); }

 private:
  /// Does the first member send its elements as they lie?
  [[nodiscard]] bool is_raw(const cpu::ReduceRule& rule) const noexcept { return options_.raw_first_hop && !rule.is_wired(); }
  void reduce_riding(Contribution& mine, const Segments& segments, Note& note);
  void reduce_piped(Contribution& mine, const Segments& segments, Note& note);
  void reduce_direct(const Stamp& stamp, Contribution& mine, Note& note);
  [[nodiscard]] Exchange::Tallies meet_tallies(Contribution& mine, Note& note);
  void gather_direct(std::byte* all, int64_t part_bytes);
  void gather_parts(std::byte* all, int64_t part_bytes);
  void spread(std::byte* data, int64_t bytes, int32_t root_position);
  void all_agree(const Stamp& stamp);

  Line& line_;
  ChainOptions options_;
  Sweep sweep_;
  Scratch scratch_;
  ExchangeMemory exchange_memory_;
};

}  // namespace ddp
