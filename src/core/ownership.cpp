// SPDX-License-Identifier: Apache-2.0
#include "core/ownership.hpp"

#include <algorithm>

namespace ddp {
namespace {

Ownership::Slice everything(const std::vector<int64_t>& counts) {
  Ownership::Slice slice;
  for (size_t piece = 0; piece < counts.size(); ++piece)
    if (counts[piece] > 0) slice.push_back(OwnedSpan{static_cast<int32_t>(piece), 0, counts[piece]});
  return slice;
}

}  // namespace

Ownership Ownership::divided(std::vector<Slice> by_rank) {
  Ownership made;
  made.by_rank_ = std::move(by_rank);
  return made;
}

Ownership Ownership::of_all(const std::vector<int64_t>& counts, int32_t ranks) {
  return divided(std::vector<Slice>(static_cast<size_t>(ranks), everything(counts)));
}

OwnedParts Ownership::parts(int32_t rank, int32_t piece) const noexcept {
  const Slice& spans = slice(rank);
  const auto first =
      std::partition_point(spans.begin(), spans.end(), [&](const OwnedSpan& span) { return span.piece < piece; });
  const auto end = std::partition_point(first, spans.end(), [&](const OwnedSpan& span) { return span.piece == piece; });
  return OwnedParts(first, end);
}

int64_t Ownership::count(int32_t rank) const noexcept {
  int64_t count = 0;
  for (const OwnedSpan& span : slice(rank)) count += span.count;
  return count;
}

int64_t Ownership::most() const noexcept {
  int64_t most = 0;
  for (int32_t rank = 0; rank < ranks(); ++rank) most = std::max(most, count(rank));
  return most;
}

}  // namespace ddp
