// The bucket plan: small models exhaustively, large ones at random, held to the rule in plan.hpp.
#include "core/plan.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "core/dtype.hpp"
#include "support/check.hpp"

namespace ddp::test {
namespace {

int64_t bytes_of(const PlannedBucket& bucket, const std::vector<PlanItem>& items) {
  int64_t sum = 0;
  for (const int32_t p : bucket.parameters) sum += items[static_cast<size_t>(p)].count;
  return sum * dtype_size(bucket.dtype);
}

/// What every plan promises.
void expect_rule(const std::vector<PlanItem>& items, int64_t first, int64_t limit) {
  const Plan plan = plan_buckets(items, first, limit);
  std::set<int32_t> seen;
  int32_t last_complete = INT32_MAX;
  std::set<ddp_dtype> begun;
  for (const PlannedBucket& bucket : plan) {
    expect(!bucket.parameters.empty(), "no bucket is empty");
    int64_t end = 0;
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const PlanItem& item = items[static_cast<size_t>(bucket.parameters[i])];
      expect(item.dtype == bucket.dtype, "one dtype in a bucket");
      expect(seen.insert(bucket.parameters[i]).second, "a parameter is in one bucket");
      expect(i == 0 || bucket.parameters[i] < bucket.parameters[i - 1], "reverse registration order");
      expect(bucket.offsets[i] >= end && bucket.offsets[i] * dtype_size(item.dtype) % 64 == 0,
             "offsets are disjoint and aligned");
      end = bucket.offsets[i] + item.count;
    }
    expect(bucket.count >= end, "the bucket holds its parameters");
    const int32_t complete = *std::min_element(bucket.parameters.begin(), bucket.parameters.end());
    expect(complete < last_complete, "buckets come in the order in which they are complete");
    last_complete = complete;
    const int64_t most = begun.insert(bucket.dtype).second ? std::min(first, limit) : limit;
    expect(bucket.parameters.size() == 1 || bytes_of(bucket, items) <= std::max(first, most), "a limit is kept");
  }
  expect_equal(seen.size(), items.size(), "parameters in the plan");
}

void small_models_keep_the_rule(void**) {
  constexpr int64_t kCounts[] = {0, 1, 16, 17, 100};
  for (size_t n = 0; n <= 4; ++n) {
    std::vector<size_t> pick(n, 0);
    for (bool more = true; more;) {
      std::vector<PlanItem> items;
      for (const size_t p : pick) items.push_back({kCounts[p % 5], p < 5 ? DDP_F32 : DDP_F16});
      for (const int64_t first : {1, 64, 200})
        for (const int64_t limit : {1, 128, 100000}) expect_rule(items, first, limit);
      more = false;
      for (size_t& p : pick) {
        if (++p < 10) {
          more = true;
          break;
        }
        p = 0;
      }
    }
  }
}

void large_models_keep_the_rule(void**) {
  std::mt19937 random(20240611);
  for (int round = 0; round < 200; ++round) {
    std::vector<PlanItem> items(random() % 3000);
    for (PlanItem& item : items) item = {static_cast<int64_t>(random() % 5000), random() % 4 == 0 ? DDP_F64 : DDP_F32};
    expect_rule(items, 1 << (random() % 20), 1 << (random() % 22));
  }
}

void the_defaults_start_small_and_go_on_large(void**) {
  const std::vector<PlanItem> items(100, PlanItem{1 << 18, DDP_F32});  // 100 times 1 MiB
  const Plan plan = plan_buckets(items, 1 << 20, 25 << 20);
  expect_equal(plan.size(), size_t{5}, "buckets");
  expect_equal(plan[0].parameters.size(), size_t{1}, "parameters in the first");
  expect_equal(plan[1].parameters.size(), size_t{25}, "parameters in the second");
  expect_equal(plan[0].parameters[0], 99, "the first gradient of backward");
}

void the_hash_tells_plans_apart(void**) {
  const std::vector<PlanItem> items(10, PlanItem{100, DDP_F32});
  const Plan plan = plan_buckets(items, 400, 1000);
  expect(hash_plan(plan, 1) == hash_plan(plan_buckets(items, 400, 1000), 1), "the same plan");
  expect(hash_plan(plan, 1) != hash_plan(plan, 2), "another model");
  expect(hash_plan(plan, 1) != hash_plan(plan_buckets(items, 400, 2000), 1), "other limits");
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {ddp_test(small_models_keep_the_rule), ddp_test(large_models_keep_the_rule),
                              ddp_test(the_defaults_start_small_and_go_on_large), ddp_test(the_hash_tells_plans_apart)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
