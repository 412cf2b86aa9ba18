// Ownership as a value: who owns what of a list of pieces, numbers by hand.
#include "core/ownership.hpp"

#include "support/check.hpp"

namespace ddp::test {
namespace {

void expect_span(const OwnedSpan& span, int32_t piece, int64_t first, int64_t count) {
  expect_equal(span.piece, piece, "piece");
  expect_equal(span.first, first, "first");
  expect_equal(span.count, count, "count");
}

void a_divided_list_has_one_owner_for_each_element(void**) {
  const Ownership ownership = Ownership::divided({{{0, 0, 10}, {2, 0, 5}}, {{2, 5, 3}, {3, 0, 1}}});
  expect_equal(ownership.ranks(), 2, "ranks");
  expect_span(ownership.part(0, 0), 0, 0, 10);
  expect_span(ownership.part(1, 0), 0, 0, 0);
  expect_span(ownership.part(0, 1), 1, 0, 0);
  expect_span(ownership.part(0, 2), 2, 0, 5);
  expect_span(ownership.part(1, 2), 2, 5, 3);
  expect_span(ownership.part(1, 3), 3, 0, 1);
  expect_equal(ownership.parts(2).size(), size_t{2}, "parts");
  expect_span(ownership.parts(2)[1], 2, 5, 3);
  expect_equal(ownership.count(0), int64_t{15}, "elements of rank 0");
  expect_equal(ownership.most(), int64_t{15}, "most");
}

void a_root_owns_everything_and_the_others_nothing(void**) {
  const Ownership ownership = Ownership::of_root({4, 0, 6}, 1, 3);
  expect_equal(ownership.count(0) + ownership.count(2), int64_t{0}, "the others");
  expect_equal(ownership.count(1), int64_t{10}, "the root");
  expect_span(ownership.part(1, 2), 2, 0, 6);
  expect_span(ownership.part(1, 1), 1, 0, 0);
  expect_equal(ownership.slice(1).size(), size_t{2}, "no empty spans");
}

void all_own_everything(void**) {
  const Ownership ownership = Ownership::of_all({4, 6}, 2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    expect_span(ownership.part(rank, 0), 0, 0, 4);
    expect_span(ownership.part(rank, 1), 1, 0, 6);
  }
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {ddp_test(a_divided_list_has_one_owner_for_each_element),
                              ddp_test(a_root_owns_everything_and_the_others_nothing), ddp_test(all_own_everything)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
