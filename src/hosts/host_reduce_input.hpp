// SPDX-License-Identifier: Apache-2.0
// What one host adds to an exchange between hosts: the nodes of the sum that have leaves of its ranks alone, formed
// from their arrays in shared memory. Results are written to all of its ranks, or to the one that owns
// them. So the sum over all ranks is the tree's, with the bits of every other transport, wherever the ranks run.
//
// Cost: a node reads the span once for each rank, delivering writes it once for each rank. Threads: the rail's.
// Allocates when it is made.
// Tested by unit/exchange/host_reduce_input_test.cpp and process/hierarchy_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "socket/reduce_input.hpp"

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

/// A span that belongs to one rank of this host.
struct OwnSpan {
  socket::Span span;
  int32_t local = 0;
};

class HostReduceInput final : public socket::ReduceInput {
 public:
  /// `nodes`: those of this host, of `map`; `ranks` are its ranks, ascending.
  HostReduceInput(const cpu::ReduceRule& rule, HostArray array, const LeafMap& map, const std::vector<int32_t>& ranks);

  /// What single ranks of this host own, in the order of the array: results for it go to the owner alone (`to_owner`),
  /// values come from it.
  void set_owned(std::vector<OwnSpan> owned, bool to_owner);
  /// Have the pages mapped that a span touches, so that the first pass is no slower than the rest.
  void populate(socket::Span span) const noexcept;

  [[nodiscard]] const void* node(size_t index, socket::Span span, void* scratch) noexcept override;
  [[nodiscard]] const void* values(socket::Span span, void* scratch) noexcept override;
  [[nodiscard]] void* landing(socket::Span span) noexcept override;
  void deliver(const void* result, socket::Span span) noexcept override;
  void learn(const collective::BucketHeader& header) noexcept override;

 private:
  /// Calls fn(piece, element of the piece, element of the span, count) for each piece that the span touches.
  template <class Fn>
  void each(socket::Span span, const Fn& fn) const noexcept;
  [[nodiscard]] std::byte* at(size_t piece, int32_t rank, int64_t element) const noexcept {
    return array_.bases[piece * static_cast<size_t>(array_.ranks) + static_cast<size_t>(rank)] + element * size_;
  }
  [[nodiscard]] const void* leaf(int32_t rank, socket::Span span, void* scratch) noexcept;
  void form(const std::vector<int32_t>& leaves, socket::Span span, void* scratch) noexcept;
  [[nodiscard]] int32_t owner_of(socket::Span span) const noexcept;

  HostArray array_;
  int64_t size_;                             // bytes of an element
  int64_t carry_size_;                       // of an accumulator
  int64_t travel_size_;                      // of an element between hosts
  std::vector<bool> used_;                   // by piece: some rank contributes
  std::vector<std::vector<int32_t>> nodes_;  // local ranks by leaf; kHole: none
  std::vector<OwnSpan> owned_;
  bool to_owner_ = false;
  std::vector<const void*> in_;  // of one node
  std::vector<double> weights_;
};

}  // namespace ddp::hierarchy
