// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes and make different collective calls learn it at once, over shared memory and over Gloo.
#include "support/different_calls.hpp"

namespace ddp::test {
namespace {

void every_pair_of_different_calls_is_a_mismatch(void**) { expect_mismatch(Path::kShm, 2, all_pairs()); }

void some_pairs_over_gloo(void**) {
  if (has_gloo()) expect_mismatch(Path::kGloo, 2, some_pairs());
}

void two_ranks_against_one_over_gloo(void**) {
  if (has_gloo()) expect_mismatch(Path::kGloo, 3, {{0, 7}, {7, 0}, {22, 18}, {23, 9}, {15, 23}, {19, 24}, {1, 5}});
}

void some_pairs_on_two_hosts_with_two_ranks_each(void**) {
  if (!has_gloo()) return;
  expect_mismatch(Path::kGloo, 4, {{0, 7}, {7, 0}, {22, 18}, {23, 9}, {15, 23}, {19, 24}, {1, 5}}, 0, true);
  expect_mismatch(Path::kGloo, 4, {{0, 7}, {7, 0}, {22, 18}, {23, 9}, {15, 23}, {19, 24}, {1, 5}}, 3, true);
}

void a_late_rank_is_waited_for(Path path) { expect_patience(path); }

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(every_pair_of_different_calls_is_a_mismatch),
      ddp_test(some_pairs_over_gloo),
      ddp_test(two_ranks_against_one_over_gloo),
      ddp_test(some_pairs_on_two_hosts_with_two_ranks_each),
      ddp_paths_test(a_late_rank_is_waited_for),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
