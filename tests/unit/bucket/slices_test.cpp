// Slices: every element has one owner, cuts lie where the rule says, and nobody gets much more than its part.
#include "bucket/slices.hpp"

#include <algorithm>
#include <random>

#include "support/check.hpp"

namespace ddp::test {
namespace {

void expect_rule(const std::vector<int64_t>& sizes, int32_t ranks) {
  std::vector<PlanItem> items;
  for (const int64_t size : sizes) items.push_back(PlanItem{size, DDP_F32});
  const Plan plan = plan_buckets(items, INT64_MAX / 8, INT64_MAX / 8);
  expect_equal(plan.size(), size_t{1}, "buckets");
  std::vector<int64_t> counts;
  for (const int32_t index : plan[0].parameters) counts.push_back(sizes[static_cast<size_t>(index)]);
  const Slices slices = cut_slices(plan[0], counts, ranks);
  expect_equal(slices.size(), static_cast<size_t>(ranks), "slices");
  size_t k = 0;
  int64_t next = 0;
  for (const auto& slice : slices) {
    int64_t owned = 0;
    for (const OwnedSpan& span : slice) {
      while (k < counts.size() && next == counts[k]) ++k, next = 0;
      expect_equal(static_cast<size_t>(span.piece), k, "the piece that follows");
      expect_equal(span.first, next, "the element that follows");
      expect(span.count > 0 && span.first % kSliceUnit == 0, "spans are not empty and begin at a block");
      next += span.count;
      owned += span.count;
    }
    expect(owned <= plan[0].count / ranks + kSliceUnit + 16 * static_cast<int64_t>(counts.size()) + 1, "a slice is about a part");
  }
  while (k < counts.size() && next == counts[k]) ++k, next = 0;
  expect_equal(k, counts.size(), "all elements are owned, pieces");
}

void every_element_has_one_owner(void**) {
  expect_rule({1}, 3);
  expect_rule({5000}, 1);
  expect_rule({5000}, 4);
  expect_rule({1024, 1024, 1024, 1024}, 4);
  expect_rule({0, 7, 0, 3000, 0}, 2);
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> sizes(1 + random() % 20);
    for (int64_t& size : sizes) size = static_cast<int64_t>(random() % 3 == 0 ? random() % 100'000 : random() % 50);
    expect_rule(sizes, static_cast<int32_t>(1 + random() % 9));
  }
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {ddp_test(every_element_has_one_owner)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
