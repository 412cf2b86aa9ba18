// SPDX-License-Identifier: Apache-2.0
// What follows when ranks have failed, for every kind of job.
#include "ddprun/restarts.hpp"

#include "ddprun/story.hpp"
#include "support/check.hpp"

using namespace ddp::ddprun;
using ddp::test::expect_equal;

Options options(int32_t max_restarts, int32_t min_ranks) {
  Options made;
  made.max_restarts = max_restarts;
  made.min_ranks = min_ranks;
  return made;
}

void expect_answer(Answer got, Answer wanted, const char* what) {
  expect_equal(static_cast<int>(got), static_cast<int>(wanted), what);
}

ddp_case(the_dead_join_while_restarts_are_left) {
  Restarts restarts(options(2, 0));
  expect_answer(restarts.next(3, 0), Answer::kJoin, "the first");
  expect_answer(restarts.next(3, 0), Answer::kJoin, "the second");
  expect_answer(restarts.next(3, 0), Answer::kEnd, "no restart is left, and nobody said that fewer are enough");
  expect_equal(restarts.used(), 2, "restarts");
}

ddp_case(fewer_may_go_on_only_if_that_was_said) {
  Restarts restarts(options(0, 2));
  expect_answer(restarts.next(2, 0), Answer::kGoOn, "two of two");
  expect_answer(restarts.next(1, 0), Answer::kEnd, "one of two");
}

ddp_case(with_too_few_all_start_again) {
  Restarts restarts(options(1, 3));
  expect_answer(restarts.next(2, 0), Answer::kRestartAll, "two of three");
  expect_answer(restarts.next(2, 0), Answer::kEnd, "two of three, no restart is left");
  Restarts nobody(options(1, 0));
  expect_answer(nobody.next(0, 0), Answer::kRestartAll, "nobody is left");
}

ddp_case(nobody_joins_ranks_that_have_ended) {
  Restarts restarts(options(5, 2));
  expect_answer(restarts.next(1, 1), Answer::kGoOn, "one runs and one has succeeded");
  expect_answer(restarts.next(0, 1), Answer::kEnd, "one has succeeded, two were wanted");
  expect_equal(restarts.used(), 0, "restarts");
}

ddp_case(a_place_that_flaps_rests_longer_and_longer) {
  Cooldown cooldown;
  expect_equal(cooldown.rest_ms("a", 5), int64_t{0}, "the first failure");
  expect_equal(cooldown.rest_ms("a", 5), int64_t{10'000}, "the second");
  expect_equal(cooldown.rest_ms("b", 5), int64_t{0}, "another place");
  expect_equal(cooldown.rest_ms("a", 60'000), int64_t{20'000}, "the third");
  for (int i = 0; i < 30; ++i) static_cast<void>(cooldown.rest_ms("a", 5));
  expect_equal(cooldown.rest_ms("a", 5), int64_t{600'000}, "the longest");
  expect_equal(cooldown.rest_ms("a", 61'000), int64_t{0}, "after a life that was long enough");
  expect_equal(cooldown.rest_ms("a", 5), int64_t{10'000}, "and again");
}

ddp_case(a_long_story_keeps_its_beginning_and_its_end) {
  Story story;
  for (int i = 0; i < 100; ++i) story.add(i, "event " + std::to_string(i));
  const std::vector<std::string> lines = story.lines();
  expect_equal(lines.size(), size_t{81}, "lines");
  expect_equal(lines.front(), std::string("     0.0 s  event 0"), "the first");
  expect_equal(lines[20], std::string("         ... 20 more ..."), "the gap");
  expect_equal(lines.back(), std::string("    99.0 s  event 99"), "the last");
}

ddp_case(a_restart_of_all_waits_for_the_last_end) {
  PendingRestart pending{Restarts(Options())};
  pending.all = true;
  pending.all_due = ddp::os::Deadline::in_ms(500);
  ddp::test::expect(pending.left_ms(false) > 1'000, "others run: there is nothing to do yet, and so nothing to wake up for");
  ddp::test::expect(pending.left_ms(true) <= 500, "all have ended");
}
