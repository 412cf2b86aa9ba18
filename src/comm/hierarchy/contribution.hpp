// What one host adds to a rail: the same span of all its ranks, in rank order, read and written where it lies in shared memory. So the sum
// over the rail is formed rank by rank over the whole group, with the bits of every other transport.
//
// Cost: adding reads the span once per rank, delivering writes it once per rank. Threads: the rail's. Allocates when it is made.
// Tested by unit/comm/host_contribution_test.cpp and process/hierarchy_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/rail/contribution.hpp"

namespace ddp::hierarchy {

/// A flat array as the ranks of a host hold it: pieces that follow each other, each at some address on every rank.
struct HostArray {
  struct Piece {
    int64_t first = 0;  // element of the flat array
    int64_t count = 0;
  };
  int32_t ranks = 1;
  std::vector<Piece> pieces;
  std::vector<std::byte*> bases;  // [piece * ranks + local rank]
};

class HostContribution final : public Contribution {
 public:
  /// Elements `slice.first` to `slice.first + slice.count` of the array.
  HostContribution(const cpu::ReduceRule& rule, HostArray array, Span slice);

  /// Have the pages mapped that the slice touches, so that the first pass is no slower than the rest.
  void populate() const noexcept;

  [[nodiscard]] const void* own(Span span, void* scratch) noexcept override;
  void add(Incoming in, void* out, Span span) noexcept override;
  void finish(Incoming in, void* result, Span span) noexcept override;
  [[nodiscard]] void* landing(Span span) noexcept override;
  void deliver(const void* result, Span span) noexcept override;
  void learn(const Note& note) noexcept override;

 private:
  /// Calls fn(piece, element of the piece, element of the span, count) for each piece that the span touches.
  template <class Fn>
  void each(Span span, const Fn& fn) const noexcept;
  [[nodiscard]] std::byte* at(size_t piece, int32_t rank, int64_t element) const noexcept {
    return array_.bases[piece * static_cast<size_t>(array_.ranks) + static_cast<size_t>(rank)] + element * size_;
  }
  [[nodiscard]] const Terms& terms_of(Incoming in, size_t piece, int64_t element) noexcept;
  [[nodiscard]] Incoming from(Incoming in, int64_t done) const noexcept;

  HostArray array_;
  int64_t begin_;       // of the slice
  int64_t size_;        // bytes of an element
  int64_t carry_size_;  // of an accumulator
  int64_t travel_size_; // of an element between hosts
  std::vector<bool> used_;  // by piece: some rank contributes
  Terms terms_;             // of one call
};

}  // namespace ddp::hierarchy
