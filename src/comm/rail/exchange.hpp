// The direct exchange: a large reduction between members that are all linked with each other. Member k owns slice k of the array:
//
//   parts:    everybody sends its elements of slice k to k, as they lie
//   sum:      k adds all of them at once, in the order of the members
//   results:  k sends the finished slice to everybody, where it lands in the array
//
// Every member sends and receives 2 (n - 1) / n times the array, as in a ring, adds 1 / n of it, and is two hops from everybody; but the order
// of addition does not depend on the place, so the bits are those of cpu::reduce over all inputs. 16-bit floats travel as they are.
//
// Slices are cut into segments. In step t a member adds segment t of its slice and sends it off, waits for the others' results of the step
// before, and begins step t + kAhead. Everything that a wait needs was begun in an earlier step of somebody, so no cycle can arise.
//
// Needs: all stamps were compared and all notes are joined (a sweep), because sizes follow from them; nobody's contribution is several arrays.
// Threads: one at a time. Allocates nothing. Tested by unit/comm/exchange_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "comm/rail/contribution.hpp"
#include "comm/rail/line.hpp"
#include "comm/rail/slicing.hpp"

namespace ddp {

/// Steps that are begun before the sum of the first of them, and segments of a slice in flight.
inline constexpr int32_t kAhead = 2;
inline constexpr int32_t kExchangeDepth = kAhead + 1;

/// Segments in flight from and to each member, and their messages. Only a third of it is ever touched if all segments lie within pieces.
class ExchangeMemory {
 public:
  enum Kind { kPartIn = 0, kPartOut = 1, kResult = 2 };
  struct Messages {
    Line::Message part_in, part_out, result_in, result_out;
  };

  void reserve(int32_t members) {
    if (memory_ != nullptr) return;
    const auto slots = static_cast<size_t>(members * kExchangeDepth);
    messages_.resize(slots);
    terms_ = Contribution::Terms(static_cast<size_t>(members));
    segment_ = (Slicing::largest_segment(members) + 4095) / 4096 * 4096;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, 3 * slots * static_cast<size_t>(segment_))));
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  [[nodiscard]] std::byte* slot(Kind kind, int32_t member, int64_t t) noexcept {
    return memory_.get() + (3 * index(member, t) + kind) * segment_;
  }
  [[nodiscard]] Messages& messages(int32_t member, int64_t t) noexcept { return messages_[static_cast<size_t>(index(member, t))]; }
  [[nodiscard]] Contribution::Terms& terms() noexcept { return terms_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  [[nodiscard]] static int64_t index(int32_t member, int64_t t) noexcept { return member * kExchangeDepth + t % kExchangeDepth; }

  std::unique_ptr<std::byte, Free> memory_;
  int64_t segment_ = 0;
  std::vector<Messages> messages_;
  Contribution::Terms terms_{0};
};

/// One reduction, on the stack.
class Exchange {
 public:
  using Tallies = std::array<Tally, kMostDirect>;  // of each member

  Exchange(Line& line, ExchangeMemory& memory, Contribution& mine, const Slicing& slicing, const Tallies& tallies)
      : line_(line), memory_(memory), mine_(mine), slicing_(slicing), tallies_(tallies), spreads_(!mine.keeps_part()) {}

  void run();

 private:
  void begin(int64_t t);
  void add(int64_t t);
  void settle(int64_t t);
  void swap(int32_t peer, int64_t t);
  [[nodiscard]] std::byte* place(int32_t owner, int64_t t) noexcept;
  /// Calls fn(peer), each member starting with another, so that they do not all send to the same one.
  template <class Fn>
  void each_peer(const Fn& fn) const {
    for (int32_t step = 1; step < line_.size(); ++step) fn((line_.position() + step) % line_.size());
  }

  Line& line_;
  ExchangeMemory& memory_;
  Contribution& mine_;
  const Slicing& slicing_;
  const Tallies& tallies_;
  bool spreads_;  // results go to everybody
};

}  // namespace ddp
