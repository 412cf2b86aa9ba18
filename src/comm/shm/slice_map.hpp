// Where the slices of a bucket lie, for the operations in which every rank owns one part: which of the own elements all ranks reach (in
// place), and in which order the others, rank by rank, go through the stages. Made once; addresses of staged pieces may change.
// Tested by process/fused_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/shm/engine.hpp"
#include "comm/shm/reduction.hpp"

namespace ddp::shm {

class SliceMap {
 public:
  /// A stretch of one piece.
  struct Route {
    int32_t piece = 0;
    int64_t first = 0;  // element of the piece
    int64_t count = 0;
    int64_t begin = 0;  // staged: position among its owner's staged elements
    size_t peers = 0;   // in place: first of `size` entries of the bases
  };

  /// `reach[rank * pieces + piece]`. A piece that is private memory on any rank is staged.
  SliceMap(const Engine& engine, const std::vector<BucketSpec::Piece>& pieces, int64_t element, const Slices& slices,
           const std::vector<PieceReach>& reach);

  [[nodiscard]] int64_t element() const noexcept { return element_; }
  /// The own slice, as far as all ranks reach it.
  [[nodiscard]] const std::vector<Route>& in_place() const noexcept { return in_place_; }
  /// Element `at` of a route in place, in the memory of `rank`.
  [[nodiscard]] std::byte* peer(const Route& route, size_t rank, int64_t at) const noexcept {
    return bases_[route.peers + rank] + at * element_;
  }
  /// Does anybody have something in place? Then ranks touch each other's memory.
  [[nodiscard]] bool any_in_place() const noexcept { return any_in_place_; }
  /// Does some piece lie where not all ranks reach it?
  [[nodiscard]] bool any_staged() const noexcept;

  /// The slice of `rank`, as far as it is staged, and how many elements that are.
  [[nodiscard]] const std::vector<Route>& staged(int32_t rank) const noexcept { return staged_[static_cast<size_t>(rank)]; }
  [[nodiscard]] int64_t staged_count(int32_t rank) const noexcept;
  /// The most that one rank has.
  [[nodiscard]] int64_t most_staged() const noexcept;
  /// Element `at` of a piece in this rank's memory.
  [[nodiscard]] std::byte* own(int32_t piece, int64_t at) const noexcept {
    return data_[static_cast<size_t>(piece)] + at * element_;
  }
  /// False if the piece is in place.
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept;

  /// copy(route, first element of its piece, elements from `begin`, count) for what lies in [begin, end) of a rank's staged elements.
  template <class Copy>
  void for_staged(int32_t rank, int64_t begin, int64_t end, Copy&& copy) const {
    for (const Route* route = first_behind(rank, begin); route != nullptr && route->begin < end; route = next(rank, route)) {
      const int64_t from = begin > route->begin ? begin : route->begin;
      const int64_t to = end < route->begin + route->count ? end : route->begin + route->count;
      copy(*route, route->first + (from - route->begin), from - begin, to - from);
    }
  }

  void populate() const noexcept;
  [[nodiscard]] std::string way() const;

 private:
  [[nodiscard]] const Route* first_behind(int32_t rank, int64_t begin) const noexcept;
  [[nodiscard]] const Route* next(int32_t rank, const Route* route) const noexcept;

  int64_t element_;
  size_t size_;
  bool any_in_place_ = false;
  std::vector<std::byte*> data_;         // by piece: own memory
  std::vector<bool> is_staged_;          // by piece
  std::vector<Route> in_place_;
  std::vector<std::byte*> bases_;
  std::vector<std::vector<Route>> staged_;  // by rank
};

}  // namespace ddp::shm
