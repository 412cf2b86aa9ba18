// SPDX-License-Identifier: Apache-2.0
// What the ranks tell each other with a bucket: facts that each rank adds, and that all ranks hold joined before the first
// result is written.
// Tested by unit/exchange/bucket_header_test.cpp, and on every transport by conformance/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/sum_tree.hpp"

namespace ddp::collective {

/// The part of a bucket header with a fixed size. Plain bytes: it is in shared pages and frame headers.
struct Participation {
  double weight =
      1;  // how much this rank's gradients count; 0: not at all, its memory is only written. Joined: the sum in the tree
  int32_t contributors = 1;  // joined: how many ranks have a weight above 0
  int32_t joined = 0;        // joined: the highest rank that only answers (model/join.hpp), counted from 1; 0: none
  uint64_t flags = 0;        // joined: bitwise or. Who reduces gives them a meaning

  /// A rank that counts this much.
  [[nodiscard]] static Participation of(double weight) noexcept { return Participation{weight, weight > 0 ? 1 : 0, 0, 0}; }
  /// No rank yet.
  [[nodiscard]] static Participation none() noexcept { return Participation{0, 0, 0, 0}; }

  /// Joins the node to the right of this one. Of all ranks: sum_weights().
  void add(const Participation& next) noexcept {
    weight += next.weight;
    contributors += next.contributors;
    joined = std::max(joined, next.joined);
    flags |= next.flags;
  }
};
static_assert(sizeof(Participation) == 24);

/// Joined, participation_of(0) to participation_of(n - 1): the sum of the weights is formed in the tree of core/sum_tree.hpp
/// over the ranks' positions, with Participation::none() where no rank is. Without any: Participation::none().
template <class ParticipationOf>
[[nodiscard]] Participation sum_weights(int64_t n, const ParticipationOf& participation_of) {
  if (n == 0) return Participation::none();
  return tree_sum(0, n, participation_of, [](Participation left, const Participation& right) {
    left.add(right);
    return left;
  });
}
[[nodiscard]] inline Participation sum_weights(const std::vector<Participation>& participations) {
  return sum_weights(static_cast<int64_t>(participations.size()),
                     [&](int64_t at) { return participations[static_cast<size_t>(at)]; });
}

struct BucketHeader {
  bool incomplete = false;  // some gradient of this rank was not marked: the bucket is void, no result is written anywhere
  std::vector<uint64_t> used;  // one bit per piece of the bucket: this rank contributes to it. A piece that no rank uses is
                               // left untouched everywhere
  Participation participation{};

  [[nodiscard]] bool uses(size_t piece) const noexcept { return (used[piece / 64] >> (piece % 64) & 1) != 0; }
  /// Joined: no result is written anywhere, because something is missing or there is nothing to add.
  [[nodiscard]] bool is_void() const noexcept { return incomplete || participation.contributors == 0; }
};

}  // namespace ddp::collective
