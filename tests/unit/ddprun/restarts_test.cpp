// What follows when ranks have failed, for every kind of job.
#include "ddprun/restarts.hpp"

#include "support/check.hpp"
#include "support/cmocka.hpp"

using namespace ddp::ddprun;
using ddp::test::expect_equal;

namespace {

Options options(int32_t max_restarts, int32_t min_ranks) {
  Options made;
  made.max_restarts = max_restarts;
  made.min_ranks = min_ranks;
  return made;
}

void expect_answer(Answer got, Answer wanted, const char* what) {
  expect_equal(static_cast<int>(got), static_cast<int>(wanted), what);
}

void the_dead_join_while_restarts_are_left(void**) {
  Restarts restarts(options(2, 0));
  expect_answer(restarts.next(3, 0), Answer::kJoin, "the first");
  expect_answer(restarts.next(3, 0), Answer::kJoin, "the second");
  expect_answer(restarts.next(3, 0), Answer::kEnd, "no restart is left, and nobody said that fewer are enough");
  expect_equal(restarts.used(), 2, "restarts");
}

void fewer_may_go_on_only_if_that_was_said(void**) {
  Restarts restarts(options(0, 2));
  expect_answer(restarts.next(2, 0), Answer::kGoOn, "two of two");
  expect_answer(restarts.next(1, 0), Answer::kEnd, "one of two");
}

void with_too_few_all_start_again(void**) {
  Restarts restarts(options(1, 3));
  expect_answer(restarts.next(2, 0), Answer::kRestartAll, "two of three");
  expect_answer(restarts.next(2, 0), Answer::kEnd, "two of three, no restart is left");
  Restarts nobody(options(1, 0));
  expect_answer(nobody.next(0, 0), Answer::kRestartAll, "nobody is left");
}

void nobody_joins_ranks_that_have_ended(void**) {
  Restarts restarts(options(5, 2));
  expect_answer(restarts.next(1, 1), Answer::kGoOn, "one runs and one has succeeded");
  expect_answer(restarts.next(0, 1), Answer::kEnd, "one has succeeded, two were wanted");
  expect_equal(restarts.used(), 0, "restarts");
}

void who_flaps_waits_longer_and_longer(void**) {
  Restarts restarts(options(100, 0));
  expect_equal(restarts.delay_ms(5), int64_t{1'000}, "first");
  expect_equal(restarts.delay_ms(5), int64_t{2'000}, "second");
  expect_equal(restarts.delay_ms(5), int64_t{4'000}, "third");
  for (int i = 0; i < 30; ++i) static_cast<void>(restarts.delay_ms(5));
  expect_equal(restarts.delay_ms(5), int64_t{600'000}, "the longest");
  expect_equal(restarts.delay_ms(120'000), int64_t{1'000}, "after a life that was long enough");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(the_dead_join_while_restarts_are_left), ddp_test(fewer_may_go_on_only_if_that_was_said),
      ddp_test(with_too_few_all_start_again),          ddp_test(nobody_joins_ranks_that_have_ended),
      ddp_test(who_flaps_waits_longer_and_longer),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
