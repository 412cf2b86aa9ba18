// What the ranks tell each other with a bucket: facts that each rank adds, and that all ranks hold joined before the first result is written.
// Tested by unit/comm/note_test.cpp, and on every transport by conformance/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/sum_tree.hpp"

namespace ddp {

/// The part of a note with a fixed size. Plain bytes: it lies in shared pages and frame headers.
struct Tally {
  double weight = 1;         // how much this rank's gradients count; 0: not at all, its memory is only written. Joined: the sum in the tree
  int32_t contributors = 1;  // joined: how many ranks have a weight above 0
  int32_t joined = 0;        // joined: the highest rank that only answers (reduce/join.hpp), counted from 1; 0: none
  uint64_t flags = 0;        // joined: bitwise or. Who reduces gives them a meaning

  /// A rank that counts this much.
  [[nodiscard]] static Tally of(double weight) noexcept { return Tally{weight, weight > 0 ? 1 : 0, 0, 0}; }
  /// Nobody yet.
  [[nodiscard]] static Tally none() noexcept { return Tally{0, 0, 0, 0}; }

  /// Joins the node to the right of this one. Of all ranks: sum_weights().
  void add(const Tally& next) noexcept {
    weight += next.weight;
    contributors += next.contributors;
    joined = std::max(joined, next.joined);
    flags |= next.flags;
  }
};
static_assert(sizeof(Tally) == 24);

/// Joined, tally_of(0) to tally_of(n - 1): the sum of the weights is formed in the tree of base/sum_tree.hpp over the ranks' positions, with
/// Tally::none() where nobody is. None at all: Tally::none().
template <class TallyOf>
[[nodiscard]] Tally sum_weights(int64_t n, const TallyOf& tally_of) {
  if (n == 0) return Tally::none();
  return tree_sum(0, n, tally_of, [](Tally left, const Tally& right) {
    left.add(right);
    return left;
  });
}
[[nodiscard]] inline Tally sum_weights(const std::vector<Tally>& tallies) {
  return sum_weights(static_cast<int64_t>(tallies.size()), [&](int64_t at) { return tallies[static_cast<size_t>(at)]; });
}

struct Note {
  bool incomplete = false;     // some gradient of this rank was not marked: the bucket is void, no result is written anywhere
  std::vector<uint64_t> used;  // one bit per piece of the bucket: this rank contributes to it. A piece that no rank uses is
                               // left untouched everywhere
  Tally tally{};

  [[nodiscard]] bool uses(size_t piece) const noexcept { return (used[piece / 64] >> (piece % 64) & 1) != 0; }
  /// Joined: no result is written anywhere, because something is missing or there is nothing to add.
  [[nodiscard]] bool is_void() const noexcept { return incomplete || tally.contributors == 0; }
};

}  // namespace ddp
