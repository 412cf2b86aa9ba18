// SPDX-License-Identifier: Apache-2.0
#include "core/slices.hpp"

#include <algorithm>
#include <numeric>

namespace ddp {
namespace {

/// A place in a bucket: before element `element` of its k-th piece; k is the number of pieces at the end.
struct Cut {
  size_t k = 0;
  int64_t element = 0;
};

/// At `position`, which is one between blocks on a GPU, or at the last such place before it.
Cut cut_at(const PlannedBucket& bucket, int64_t position) {
  const std::vector<PlannedPiece>& pieces = bucket.pieces;
  const auto after = std::upper_bound(pieces.begin(), pieces.end(), position,
                                      [](int64_t at, const PlannedPiece& piece) { return at < piece.offset; });
  const auto k = static_cast<size_t>(after - pieces.begin()) - 1;  // the first is at 0
  const int64_t behind = position - pieces[k].offset;
  const int64_t element = bucket.on_gpu ? behind : behind / kSliceUnit * kSliceUnit;
  return element < pieces[k].count ? Cut{k, element} : Cut{k + 1, 0};
}

Ownership::Slice between(const Cut& from, const Cut& to, const std::vector<PlannedPiece>& pieces) {
  Ownership::Slice spans;
  for (size_t k = from.k; k <= to.k && k < pieces.size(); ++k) {
    const int64_t first = k == from.k ? from.element : 0;
    const int64_t end = k == to.k ? to.element : pieces[k].count;
    if (end > first) spans.push_back(OwnedSpan{static_cast<int32_t>(k), first, end - first});
  }
  return spans;
}

/// By parameter.
std::vector<int32_t> owners_of_whole(const std::vector<int64_t>& counts, int32_t ranks) {
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return counts[a] > counts[b]; });
  std::vector<int64_t> has(static_cast<size_t>(ranks), 0);
  std::vector<int32_t> owners(counts.size());
  for (const size_t index : order) {
    const auto least = std::min_element(has.begin(), has.end());
    *least += counts[index];
    owners[index] = static_cast<int32_t>(least - has.begin());
  }
  return owners;
}

Ownership own_whole(const PlannedBucket& bucket, const std::vector<int32_t>& owners, int32_t ranks) {
  std::vector<Ownership::Slice> slices(static_cast<size_t>(ranks));
  for (size_t k = 0; k < bucket.pieces.size(); ++k) {
    const PlannedPiece& piece = bucket.pieces[k];
    const auto owner = static_cast<size_t>(owners[static_cast<size_t>(piece.parameter)]);
    if (piece.count > 0) slices[owner].push_back(OwnedSpan{static_cast<int32_t>(k), 0, piece.count});
  }
  return Ownership::divided(std::move(slices));
}

Ownership own_all(const PlannedBucket& bucket, int32_t ranks) {
  std::vector<int64_t> counts;
  for (const PlannedPiece& piece : bucket.pieces) counts.push_back(piece.count);
  return Ownership::of_all(counts, ranks);
}

}  // namespace

Ownership cut_slices(const PlannedBucket& bucket, int32_t ranks) {
  std::vector<Ownership::Slice> slices;
  Cut from;
  for (int32_t rank = 1; rank <= ranks; ++rank) {
    const int64_t position = bucket.count / ranks * rank + bucket.count % ranks * rank / ranks;
    const bool at_end = rank == ranks || bucket.pieces.empty();
    const Cut to = at_end ? Cut{bucket.pieces.size(), 0} : cut_at(bucket, position);
    slices.push_back(between(from, to, bucket.pieces));
    from = to;
  }
  return Ownership::divided(std::move(slices));
}

PlanOwnership own_plan(const Plan& plan, const std::vector<int64_t>& counts, int32_t ranks, Division division) {
  const std::vector<int32_t> owners = owners_of_whole(counts, ranks);
  PlanOwnership made;
  std::vector<Ownership::Slice> by_rank(static_cast<size_t>(ranks));
  for (const PlannedBucket& bucket : plan) {
    switch (division) {
      case Division::kNone: made.buckets.push_back(own_all(bucket, ranks)); break;
      case Division::kSlices: made.buckets.push_back(cut_slices(bucket, ranks)); break;
      case Division::kWholeTensors: made.buckets.push_back(own_whole(bucket, owners, ranks)); break;
    }
    for (int32_t rank = 0; rank < ranks; ++rank)
      for (const OwnedSpan& span : made.buckets.back().slice(rank)) {
        const PlannedPiece& piece = bucket.pieces[static_cast<size_t>(span.piece)];
        by_rank[static_cast<size_t>(rank)].push_back(OwnedSpan{piece.parameter, piece.first + span.first, span.count});
      }
  }
  for (Ownership::Slice& slice : by_rank)
    std::sort(slice.begin(), slice.end(), [](const OwnedSpan& a, const OwnedSpan& b) {
      return a.piece != b.piece ? a.piece < b.piece : a.first < b.first;
    });
  made.parameters = Ownership::divided(std::move(by_rank));
  return made;
}

}  // namespace ddp
