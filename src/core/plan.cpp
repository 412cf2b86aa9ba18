// SPDX-License-Identifier: Apache-2.0
#include "core/plan.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/dtype.hpp"
#include "core/hash.hpp"

namespace ddp {
namespace {

constexpr int64_t kAlignment = 64;  // bytes
constexpr int64_t kHostBuckets = 16;
constexpr int64_t kLeastHostBytes = int64_t{4} << 20, kMostHostBytes = int64_t{25} << 20;
constexpr int64_t kGpuBytes = int64_t{64} << 20;

struct Open {
  PlannedBucket bucket;
  bool first = true;  // of its dtype, place and optimizer
};

PlannedBucket empty_bucket(ddp_dtype dtype, bool on_gpu, int32_t optimizer) {
  PlannedBucket bucket{dtype, on_gpu};
  bucket.optimizer = optimizer;
  return bucket;
}

int64_t round_up(int64_t count, int64_t unit) noexcept { return (count + unit - 1) / unit * unit; }

void append(PlannedBucket& bucket, int32_t parameter, int64_t first, int64_t count) {
  if (bucket.on_gpu && bucket.count % kPieceUnit + count > kPieceUnit) bucket.count = round_up(bucket.count, kPieceUnit);
  bucket.pieces.push_back(PlannedPiece{parameter, first, count, bucket.count});
  bucket.count += round_up(count, kAlignment / dtype_size(bucket.dtype));
}

int64_t limit_of(const PlanItem& item, const PlanLimits& limits) noexcept {
  return item.on_gpu ? limits.gpu_bytes : limits.host_bytes;
}

/// Of a parameter; the rest of it is another piece.
int64_t piece_limit_of(const PlanItem& item, const PlanLimits& limits) noexcept {
  const bool own = !item.on_gpu && limits.host_piece_bytes > 0;
  return std::max(own ? limits.host_piece_bytes : limit_of(item, limits), kLeastPieceBytes);
}

/// Where a bucket, or a parameter that is split, may be cut.
int64_t unit_of(bool on_gpu, const PlanLimits& limits) noexcept { return on_gpu ? kPieceUnit * limits.ranks : kPieceUnit; }

/// Elements of each piece but the last.
int64_t piece_count(const PlanItem& item, const PlanLimits& limits) {
  const int64_t most = piece_limit_of(item, limits) / dtype_size(item.dtype);
  const int64_t pieces = (item.count - 1) / most + 1;
  const int64_t even = (item.count - 1) / pieces + 1;
  return round_up(even, unit_of(item.on_gpu, limits));
}

/// The last elements first.
void append_split(Plan& plan, const PlanItem& item, int32_t parameter, const PlanLimits& limits) {
  const int64_t each = piece_count(item, limits);
  for (int64_t first = (item.count - 1) / each * each; first >= 0; first -= each) {
    PlannedBucket& bucket = plan.emplace_back(empty_bucket(item.dtype, item.on_gpu, item.optimizer));
    append(bucket, parameter, first, std::min(each, item.count - first));
  }
}

/// The bucket that is expected last. No computation is left to hide it, so its last pieces are sent alone: pieces of
/// first_bytes together, at least one.
void append_last(Plan& plan, const PlannedBucket& bucket, const PlanLimits& limits) {
  const int64_t size = dtype_size(bucket.dtype);
  const size_t number = bucket.pieces.size();
  size_t kept = number;
  if (bucket.count * size > std::max(kLongTailBytes, 4 * std::min(limits.first_bytes, INT64_MAX / 4)))
    for (int64_t tail = 0; kept > 1; --kept) {
      tail += bucket.pieces[kept - 1].count * size;
      if (kept < number && tail > limits.first_bytes) break;
    }
  for (size_t p = 0; p < number; ++p) {
    if (p == 0 || p == kept) plan.push_back(empty_bucket(bucket.dtype, bucket.on_gpu, bucket.optimizer));
    append(plan.back(), bucket.pieces[p].parameter, bucket.pieces[p].first, bucket.pieces[p].count);
  }
}

/// The bucket is complete when its piece with the lowest parameter is, and of that the piece of the lowest elements.
std::pair<int32_t, int64_t> last_expected(const PlannedBucket& bucket) {
  const auto place = [](const PlannedPiece& piece) { return std::pair(piece.parameter, piece.first); };
  return place(*std::min_element(bucket.pieces.begin(), bucket.pieces.end(),
                                 [&](const PlannedPiece& a, const PlannedPiece& b) { return place(a) < place(b); }));
}

}  // namespace

PlanLimits limits_of(int64_t first_bytes, int64_t bytes, int32_t ranks, const std::vector<PlanItem>& items,
                     Oversized oversized) noexcept {
  if (bytes > 0) return PlanLimits{first_bytes, bytes, bytes, ranks};
  int64_t all = 0;
  for (const PlanItem& item : items) all += item.on_gpu ? 0 : item.count * dtype_size(item.dtype);
  const int64_t few = std::clamp(all / kHostBuckets, kLeastHostBytes, kMostHostBytes);
  return PlanLimits{first_bytes, oversized == Oversized::kWhole ? kMostHostBytes : few, kGpuBytes, ranks, kMostHostBytes};
}

Plan plan_buckets(const std::vector<PlanItem>& items, const PlanLimits& limits, Oversized oversized) {
  Plan plan;
  std::map<std::tuple<int32_t, ddp_dtype, bool>, Open> open;
  for (size_t i = items.size(); i-- > 0;) {
    const PlanItem& item = items[i];
    Open& current = open[{item.optimizer, item.dtype, item.on_gpu}];
    current.bucket.dtype = item.dtype;
    current.bucket.on_gpu = item.on_gpu;
    current.bucket.optimizer = item.optimizer;
    const int64_t size = dtype_size(item.dtype);
    const int64_t largest = limit_of(item, limits);
    const int64_t limit = current.first ? std::min(limits.first_bytes, largest) : largest;
    const bool full = (current.bucket.count + item.count) * size > limit || current.bucket.pieces.size() >= kMostPieces;
    if (full && !current.bucket.pieces.empty()) {
      plan.push_back(std::move(current.bucket));
      current.bucket = empty_bucket(item.dtype, item.on_gpu, item.optimizer);
      current.first = false;
    }
    if (oversized == Oversized::kSplit && item.count * size > piece_limit_of(item, limits)) {
      append_split(plan, item, static_cast<int32_t>(i), limits);
      current.first = false;
    } else {
      append(current.bucket, static_cast<int32_t>(i), 0, item.count);
    }
  }
  for (auto& [kind, last] : open) {
    if (last.bucket.pieces.empty()) continue;
    if (last.bucket.on_gpu || last.bucket.pieces.back().parameter != 0)
      plan.push_back(std::move(last.bucket));
    else
      append_last(plan, last.bucket, limits);
  }
  for (PlannedBucket& bucket : plan)
    if (bucket.on_gpu) bucket.count = round_up(bucket.count, unit_of(true, limits));
  std::sort(plan.begin(), plan.end(),
            [](const PlannedBucket& a, const PlannedBucket& b) { return last_expected(a) > last_expected(b); });
  return plan;
}

PlanPlaces::PlanPlaces(const Plan& plan, size_t parameters) : first_(parameters + 1, 0) {
  std::vector<std::vector<PiecePlace>> places(parameters);
  for (size_t b = 0; b < plan.size(); ++b)
    for (size_t piece = 0; piece < plan[b].pieces.size(); ++piece)
      places[static_cast<size_t>(plan[b].pieces[piece].parameter)].push_back(
          PiecePlace{static_cast<int32_t>(b), static_cast<int32_t>(piece)});
  for (size_t parameter = 0; parameter < parameters; ++parameter) {
    places_.insert(places_.end(), places[parameter].begin(), places[parameter].end());
    first_[parameter + 1] = places_.size();
  }
}

uint64_t hash_plan(const Plan& plan, uint64_t model_hash) {
  Hasher hasher;
  hasher.add(&model_hash, sizeof model_hash);
  for (const PlannedBucket& bucket : plan) {
    const auto count = static_cast<uint64_t>(bucket.pieces.size());
    const auto on_gpu = static_cast<uint64_t>(bucket.on_gpu);
    const auto optimizer = static_cast<uint64_t>(bucket.optimizer);
    hasher.add(&bucket.dtype, sizeof bucket.dtype);
    hasher.add(&on_gpu, sizeof on_gpu);
    hasher.add(&optimizer, sizeof optimizer);
    hasher.add(&count, sizeof count);
    for (const PlannedPiece& piece : bucket.pieces) {
      hasher.add(&piece.parameter, sizeof piece.parameter);
      hasher.add(&piece.first, sizeof piece.first);
      hasher.add(&piece.count, sizeof piece.count);
      hasher.add(&piece.offset, sizeof piece.offset);
    }
  }
  return hasher.value();
}

}  // namespace ddp
