#include "core/slices.hpp"

#include <algorithm>

namespace ddp {
namespace {

/// A place in a bucket: before element `element` of its k-th parameter; k is the number of parameters at the end.
struct Cut {
  size_t k = 0;
  int64_t element = 0;
};

Cut cut_at(const PlannedBucket& bucket, const std::vector<int64_t>& counts, int64_t position) {
  const auto after = std::upper_bound(bucket.offsets.begin(), bucket.offsets.end(), position);
  const auto k = static_cast<size_t>(after - bucket.offsets.begin()) - 1;  // offsets[0] is 0
  const int64_t element = (position - bucket.offsets[k]) / kSliceUnit * kSliceUnit;
  return element < counts[k] ? Cut{k, element} : Cut{k + 1, 0};
}

Ownership::Slice between(const Cut& from, const Cut& to, const std::vector<int64_t>& counts) {
  Ownership::Slice spans;
  for (size_t k = from.k; k <= to.k && k < counts.size(); ++k) {
    const int64_t first = k == from.k ? from.element : 0;
    const int64_t end = k == to.k ? to.element : counts[k];
    if (end > first) spans.push_back(OwnedSpan{static_cast<int32_t>(k), first, end - first});
  }
  return spans;
}

}  // namespace

Ownership cut_slices(const PlannedBucket& bucket, const std::vector<int64_t>& counts, int32_t ranks) {
  std::vector<Ownership::Slice> slices;
  Cut from;
  for (int32_t rank = 1; rank <= ranks; ++rank) {
    const int64_t position = bucket.count / ranks * rank + bucket.count % ranks * rank / ranks;
    const Cut to = rank == ranks || counts.empty() ? Cut{counts.size(), 0} : cut_at(bucket, counts, position);
    slices.push_back(between(from, to, counts));
    from = to;
  }
  return Ownership::divided(std::move(slices));
}

PlanOwnership own_plan(const Plan& plan, const std::vector<int64_t>& counts, int32_t ranks, bool sharded) {
  PlanOwnership made;
  std::vector<Ownership::Slice> by_rank(static_cast<size_t>(ranks));
  for (const PlannedBucket& bucket : plan) {
    std::vector<int64_t> of_bucket;
    for (const int32_t index : bucket.parameters) of_bucket.push_back(counts[static_cast<size_t>(index)]);
    made.buckets.push_back(sharded ? cut_slices(bucket, of_bucket, ranks) : Ownership::of_all(of_bucket, ranks));
    for (int32_t rank = 0; rank < ranks; ++rank)
      for (const OwnedSpan& span : made.buckets.back().slice(rank)) {
        const int32_t index = bucket.parameters[static_cast<size_t>(span.piece)];
        by_rank[static_cast<size_t>(rank)].push_back(OwnedSpan{index, span.first, span.count});
      }
  }
  for (Ownership::Slice& slice : by_rank)
    std::sort(slice.begin(), slice.end(), [](const OwnedSpan& a, const OwnedSpan& b) { return a.piece < b.piece; });
  made.parameters = Ownership::divided(std::move(by_rank));
  return made;
}

}  // namespace ddp
