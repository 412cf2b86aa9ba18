// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/dtype.hpp"
#include "core/error.hpp"
#include "core/plan.hpp"

namespace ddp {
namespace {

constexpr int32_t kNextBucket = -1;

[[noreturn]] void refuse(const char* what, long long number) {
  throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_set_buckets: %s %lld", what, number);
}

/// As the program knows it: positions have no gaps where parameters were removed.
int32_t index_of(const std::vector<PlanItem>& items, int32_t position) noexcept {
  const int32_t index = items[static_cast<size_t>(position)].index;
  return index < 0 ? position : index;
}

void check_number(int32_t number, const std::vector<PlanItem>& items, const std::vector<char>& seen) {
  if (number < 0 || static_cast<size_t>(number) >= items.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_model_set_buckets: there is no parameter %d; the model has %zu parameters", number, items.size());
  if (seen[static_cast<size_t>(number)] != 0) refuse("a parameter is named twice:", index_of(items, number));
}

void append(PlannedBucket& bucket, int32_t parameter, int64_t count) {
  if (bucket.on_gpu && bucket.count % kPieceUnit + count > kPieceUnit)
    bucket.count = (bucket.count + kPieceUnit - 1) / kPieceUnit * kPieceUnit;
  bucket.pieces.push_back(PlannedPiece{parameter, 0, count, bucket.count});
  const int64_t line = bucket.on_gpu ? 64 / dtype_size(bucket.dtype) : 1;
  bucket.count += (count + line - 1) / line * line;
}

}  // namespace

GivenBuckets read_given_buckets(std::span<const int32_t> numbers, const std::vector<PlanItem>& items) {
  std::vector<char> seen(items.size(), 0);
  GivenBuckets given(numbers.empty() ? 0 : 1);
  for (const int32_t number : numbers) {
    if (number == kNextBucket) {
      given.emplace_back();
      continue;
    }
    check_number(number, items, seen);
    seen[static_cast<size_t>(number)] = 1;
    std::vector<int32_t>& bucket = given.back();
    const PlanItem &item = items[static_cast<size_t>(number)],
                   &first = items[static_cast<size_t>(bucket.empty() ? number : bucket.front())];
    if (item.dtype != first.dtype || item.on_gpu != first.on_gpu)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "ddp_model_set_buckets: the parameters %d and %d are in one bucket, but differ in dtype or device",
                       index_of(items, bucket.front()), index_of(items, number));
    bucket.push_back(number);
  }
  for (size_t bucket = 0; bucket < given.size(); ++bucket)
    if (given[bucket].empty()) refuse("there is no parameter in bucket", static_cast<long long>(bucket));
  const auto missing = std::find(seen.begin(), seen.end(), 0);
  if (missing != seen.end())
    refuse("no bucket has parameter", index_of(items, static_cast<int32_t>(missing - seen.begin())));
  return given;
}

Plan plan_given_buckets(const GivenBuckets& given, const std::vector<PlanItem>& items, int32_t ranks) {
  Plan plan;
  for (const std::vector<int32_t>& parameters : given) {
    const PlanItem& kind = items[static_cast<size_t>(parameters.front())];
    for (size_t k = 0; k < parameters.size(); ++k) {
      const PlanItem& item = items[static_cast<size_t>(parameters[k])];
      if (item.optimizer != kind.optimizer)
        throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                         "ddp_model_set_buckets: the parameters %d and %d are in one bucket, but have different optimizers, "
                         "of which one has shard, in_backward or divide_in_step",
                         index_of(items, parameters.front()), index_of(items, parameters[k]));
      if (k % kMostPieces == 0)
        plan.push_back(PlannedBucket{kind.dtype, kind.on_gpu, {}, 0, !kind.on_gpu, k > 0, kind.optimizer});
      append(plan.back(), parameters[k], item.count);
    }
  }
  for (PlannedBucket& bucket : plan)
    if (const int64_t unit = kPieceUnit * ranks; bucket.on_gpu) bucket.count = (bucket.count + unit - 1) / unit * unit;
  return plan;
}

}  // namespace ddp
