// SPDX-License-Identifier: Apache-2.0
// Two parts of a group never continue both: every division of up to four ranks into two sides and the dead, with every view
// that the sides may have of each other.
#include "discovery/quorum.hpp"

#include "support/check.hpp"

using namespace ddp::bootstrap;
using ddp::test::expect;

enum Place { kLeft, kRight, kGone };

Membership all_of(int32_t size) {
  Membership members;
  for (int32_t id = 0; id < size; ++id) members.push_back(id);
  return members;
}

/// What one side sees: its own ranks are here; the dead are seen to be dead, or only silent, as the bits of `sees` say.
std::vector<Standing> view(const std::vector<Place>& places, Place side, int sees) {
  std::vector<Standing> standing;
  for (size_t id = 0; id < places.size(); ++id) {
    const bool dead = places[id] == kGone && (sees >> id & 1) != 0;
    standing.push_back(places[id] == side ? Standing::kHere : dead ? Standing::kDead : Standing::kSilent);
  }
  return standing;
}

bool goes_on(const std::vector<Place>& places, Place side, int sees, bool allow_half) {
  bool anybody = false;
  for (const Place place : places) anybody = anybody || place == side;
  RecoveryRule rule;
  rule.allow_half = allow_half;
  return anybody && judge(view(places, side, sees), {all_of(static_cast<int32_t>(places.size()))}, rule) == Verdict::kForm;
}

ddp_case(two_sides_of_a_cut_never_both_go_on) {
  int live = 0;
  for (int32_t size = 2; size <= 4; ++size) {
    int divisions = 1;
    for (int32_t i = 0; i < size; ++i) divisions *= 3;
    for (int division = 0; division < divisions; ++division) {
      std::vector<Place> places;
      for (int32_t i = 0, rest = division; i < size; ++i, rest /= 3) places.push_back(static_cast<Place>(rest % 3));
      for (int left_sees = 0; left_sees < 1 << size; ++left_sees)
        for (int right_sees = 0; right_sees < 1 << size; ++right_sees)
          for (const bool allow_half : {false, true}) {
            const bool left = goes_on(places, kLeft, left_sees, allow_half);
            const bool right = goes_on(places, kRight, right_sees, allow_half);
            expect(!(left && right), "two sides go on");
            live += left || right ? 1 : 0;
          }
    }
  }
  expect(live > 0, "some side goes on");
}

ddp_case(deaths_that_are_seen_leave_any_number) {
  const std::vector<Standing> one{Standing::kDead, Standing::kDead, Standing::kHere, Standing::kDead};
  expect(judge(one, {all_of(4)}, {}) == Verdict::kForm, "one of four");
  RecoveryRule two;
  two.min_ranks = 2;
  expect(judge(one, {all_of(4)}, two) == Verdict::kTooFew, "one of four, two were wanted");
}

ddp_case(who_is_expected_is_waited_for) {
  expect(judge({Standing::kHere, Standing::kExpected, Standing::kHere}, {all_of(3)}, {}) == Verdict::kWait, "it may come");
}

/// A rank that comes back from behind a cut finds no rank: the others have died, or have continued without it and ended.
ddp_case(who_was_out_of_touch_goes_on_only_if_the_others_could_not) {
  const auto here = Standing::kHere, ended = Standing::kEnded, silent = Standing::kSilent, dead = Standing::kDead;
  RecoveryRule half;
  half.allow_half = true;
  expect(judge({ended, here, ended}, {all_of(3)}, {}) == Verdict::kMinority, "two of three could go on");
  expect(judge({here, here, ended}, {all_of(3)}, {}) == Verdict::kForm, "one of three could not");
  expect(judge({here, here, ended, silent}, {all_of(4)}, {}) == Verdict::kForm, "two of four could not");
  expect(judge({ended, here, here, silent}, {all_of(4)}, half) == Verdict::kMinority, "with the lowest they could");
  expect(judge({here, ended}, {all_of(2)}, {}) == Verdict::kForm, "one of two could not");
  expect(judge({ended, here}, {all_of(2)}, half) == Verdict::kMinority, "with the lowest it could");
  expect(judge({dead, here, ended}, {all_of(3)}, {}) == Verdict::kForm, "one of the two that were left could not");
  expect(judge({here, silent, ended}, {all_of(3)}, half) == Verdict::kMinority, "two of three could, without the lowest");
}

ddp_case(half_needs_the_option_and_the_lowest) {
  const std::vector<Standing> low{Standing::kHere, Standing::kSilent}, high{Standing::kSilent, Standing::kHere};
  RecoveryRule half;
  half.allow_half = true;
  expect(judge(low, {all_of(2)}, {}) == Verdict::kMinority, "without the option");
  expect(judge(low, {all_of(2)}, half) == Verdict::kForm, "the lowest");
  expect(judge(high, {all_of(2)}, half) == Verdict::kMinority, "not the lowest");
}

/// A group that was formed and not confirmed counts as well as the one before it.
ddp_case(every_membership_must_agree) {
  const std::vector<Standing> standing{Standing::kHere, Standing::kHere, Standing::kSilent, Standing::kSilent};
  expect(judge(standing, {{0, 1, 2}}, {}) == Verdict::kForm, "two of three");
  expect(judge(standing, {{0, 1, 2}, {1, 2, 3}}, {}) == Verdict::kMinority, "two of three, and one of three");
}
