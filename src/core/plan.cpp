#include "core/plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/dtype.hpp"
#include "core/hash.hpp"

namespace ddp {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

struct Open {
  PlannedBucket bucket;
  bool first = true;  // of its dtype and place
};

void append(PlannedBucket& bucket, int32_t parameter, int64_t count) {
  const int64_t unit = kAlignment / dtype_size(bucket.dtype);
  bucket.parameters.push_back(parameter);
  bucket.offsets.push_back(bucket.count);
  bucket.count += (count + unit - 1) / unit * unit;
}

/// The bucket is complete when its parameter with the lowest number is.
int32_t last_expected(const PlannedBucket& bucket) {
  return *std::min_element(bucket.parameters.begin(), bucket.parameters.end());
}

}  // namespace

Plan plan_buckets(const std::vector<PlanItem>& items, int64_t first_bytes, int64_t bucket_bytes) {
  Plan plan;
  std::map<std::pair<ddp_dtype, bool>, Open> open;
  for (size_t i = items.size(); i-- > 0;) {
    const PlanItem& item = items[i];
    Open& current = open[{item.dtype, item.on_gpu}];
    current.bucket.dtype = item.dtype;
    current.bucket.on_gpu = item.on_gpu;
    const int64_t size = dtype_size(item.dtype);
    const int64_t limit = current.first ? std::min(first_bytes, bucket_bytes) : bucket_bytes;
    const bool full = (current.bucket.count + item.count) * size > limit || current.bucket.parameters.size() >= kMostPieces;
    if (full && !current.bucket.parameters.empty()) {
      plan.push_back(std::move(current.bucket));
      current.bucket = PlannedBucket{item.dtype, item.on_gpu, {}, {}, 0};
      current.first = false;
    }
    append(current.bucket, static_cast<int32_t>(i), item.count);
  }
  for (auto& [kind, last] : open)
    if (!last.bucket.parameters.empty()) plan.push_back(std::move(last.bucket));
  std::sort(plan.begin(), plan.end(),
            [](const PlannedBucket& a, const PlannedBucket& b) { return last_expected(a) > last_expected(b); });
  return plan;
}

uint64_t hash_plan(const Plan& plan, uint64_t model_hash) {
  Hasher hasher;
  hasher.add(&model_hash, sizeof model_hash);
  for (const PlannedBucket& bucket : plan) {
    const auto count = static_cast<uint64_t>(bucket.parameters.size());
    const auto on_gpu = static_cast<uint64_t>(bucket.on_gpu);
    hasher.add(&bucket.dtype, sizeof bucket.dtype);
    hasher.add(&on_gpu, sizeof on_gpu);
    hasher.add(&count, sizeof count);
    hasher.add(bucket.parameters.data(), bucket.parameters.size() * sizeof(int32_t));
    hasher.add(bucket.offsets.data(), bucket.offsets.size() * sizeof(int64_t));
  }
  return hasher.value();
}

}  // namespace ddp
