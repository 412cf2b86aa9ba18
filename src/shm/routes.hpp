// SPDX-License-Identifier: Apache-2.0
// The places of an exchange's pieces, and the part of each rank.
//   in place  pieces that all ranks reach: the owner reads and writes them where they are
//   staged    the others: they go through the stages, rank by rank, in the order of their owner's slice
// Of a piece in memory of the program that is shared where it is, the ends are staged which on some rank are outside of
// whole pages. With an ownership the owners' spans are taken. Without one (an all-reduce) the elements are divided equally,
// and pieces that follow one another on every rank are one stretch, so that the reduction of many small gradients is one
// long loop. Made once; addresses of staged pieces may change. Tested by conformance/pass_test.cpp and
// conformance/fused_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shm/engine.hpp"
#include "shm/extent.hpp"
#include "shm/share.hpp"

namespace ddp::shm {

/// The place of one rank's piece, as exchanged when an exchange is prepared.
struct PieceReach {
  int64_t offset = kNotInReach;  // in its region, as in extent.hpp; kNotInReach: private memory
  int64_t owned = 0;             // 1: libddp's own memory, padded with zeros to the next piece
};

class Routes {
 public:
  /// A stretch of one piece (of several, where they are joined).
  struct Route {
    int32_t piece = 0;
    int64_t first = 0;  // element of the piece
    int64_t count = 0;
    int64_t begin = 0;  // position among the elements of its list
    size_t peers = 0;   // in reach: first of `size` entries of the bases; those of the outputs follow
  };

  /// reach[rank * pieces + piece], of the specification's pieces and of its outputs (if it has some). A piece that is
  /// private memory on any rank is staged.
  Routes(const Engine& engine, const collective::ExchangeSpec& spec, const std::vector<PieceReach>& pieces,
         const std::vector<PieceReach>& outputs);

  [[nodiscard]] int64_t element() const noexcept { return element_; }
  /// What this rank works on in place; `joined`: as long stretches, if every piece is worked on.
  [[nodiscard]] const std::vector<Route>& in_place(bool joined) const noexcept {
    return joined && is_shared_ ? joined_ : in_place_;
  }
  /// Element `at` of a route, in the memory of `rank`.
  [[nodiscard]] std::byte* input(const Route& route, size_t rank, int64_t at) const noexcept {
    return bases_[route.peers + rank] + (route.first + at) * element_;
  }
  [[nodiscard]] std::byte* output(const Route& route, size_t rank, int64_t at) const noexcept {
    return bases_[route.peers + rank + (outputs_.empty() ? 0 : size_)] + (route.first + at) * element_;
  }
  /// Does any rank touch another's memory?
  [[nodiscard]] bool touches_others() const noexcept { return touches_others_; }
  /// The inputs of all that is staged are in reach: only outputs go through the stages.
  [[nodiscard]] bool reads_directly() const noexcept { return reads_directly_; }

  /// Of the staged elements that a rank owns: how many, and the most that one rank has.
  [[nodiscard]] int64_t staged_count(int32_t rank) const noexcept;
  [[nodiscard]] int64_t most_staged() const noexcept;
  [[nodiscard]] const std::vector<Route>& staged(int32_t rank) const noexcept { return staged_[static_cast<size_t>(rank)]; }
  /// Element `at` of a piece in this rank's memory.
  [[nodiscard]] std::byte* own_input(int32_t piece, int64_t at) const noexcept {
    return pieces_[static_cast<size_t>(piece)] + at * element_;
  }
  [[nodiscard]] std::byte* own_output(int32_t piece, int64_t at) const noexcept {
    return (outputs_.empty() ? pieces_ : outputs_)[static_cast<size_t>(piece)] + at * element_;
  }
  /// False if others reach into the piece.
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept;

  /// copy(route, first element of its piece, elements from `begin`, count) for the part in [begin, end) of a rank's staged
  /// elements.
  template <class Copy>
  void for_staged(int32_t rank, int64_t begin, int64_t end, Copy&& copy) const {
    const std::vector<Route>& routes = staged(rank);
    for (auto route = route_at(rank, begin); route != routes.end() && route->begin < end; ++route) {
      const int64_t from = std::max(begin, route->begin);
      const int64_t to = std::min(end, route->begin + route->count);
      copy(*route, route->first + (from - route->begin), from - begin, to - from);
    }
  }
  /// The route with the staged element `position` of a rank.
  [[nodiscard]] std::vector<Route>::const_iterator route_at(int32_t rank, int64_t position) const noexcept {
    const std::vector<Route>& routes = staged(rank);
    return std::partition_point(routes.begin(), routes.end(), [&](const Route& r) { return r.begin + r.count <= position; });
  }

  /// Have the pages mapped that this rank will touch in the others' memory, so that the first pass is no slower than the
  /// rest.
  void populate() const noexcept;
  /// "in place", "staged", "3 in place, 1 staged"
  [[nodiscard]] std::string describe() const;

 private:
  void find_reach(const collective::ExchangeSpec& spec, const std::vector<PieceReach>& pieces,
                  const std::vector<PieceReach>& outputs);
  void hold(const Engine& engine, const collective::ExchangeSpec& spec);
  void divide_by_owner(const Ownership& ownership, const std::vector<size_t>& bases);
  void divide_equally(const collective::ExchangeSpec& spec, const std::vector<PieceReach>& reach,
                      const std::vector<size_t>& bases);
  [[nodiscard]] bool follows(const Route& last, const Route& next, bool padded, int64_t* gap) const noexcept;

  int64_t element_;
  size_t size_;
  int32_t self_;
  bool is_shared_;  // without owners
  bool touches_others_ = false;
  bool reads_directly_ = false;
  std::vector<std::byte*> pieces_;   // own memory
  std::vector<std::byte*> outputs_;  // the same; empty: the pieces
  std::vector<bool> is_staged_;      // by piece: all of it, or what is outside of in_reach_
  std::vector<Extent> in_reach_;     // by piece
  std::vector<std::byte*> bases_;    // of what is in reach, rank by rank
  std::vector<Route> in_place_;
  std::vector<Route> joined_;
  std::vector<std::vector<Route>> staged_;          // by rank
  std::vector<std::shared_ptr<const void>> holds_;  // of memory of the program that is shared
};

}  // namespace ddp::shm
