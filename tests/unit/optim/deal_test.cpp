// SPDX-License-Identifier: Apache-2.0
// Which step the parts are dealt out of, by hand: who is behind, who is gone, and deals that some ranks have not finished.
#include "optim/deal.hpp"

#include <vector>

#include "support/check.hpp"

namespace ddp::test {
namespace {

using optim::Deal;
using optim::find_deal;
using optim::Holdings;
using optim::Versions;

constexpr Versions kNone{};

Holdings has(int64_t number, int32_t rank, std::vector<Versions> versions) {
  return {false, {Holdings::Hand{number, rank, std::move(versions)}}};
}

void all_go_on_from_the_newest_step_that_all_have_made(void**) {
  // Rank 1 of three has died in step 8, which nobody has counted.
  const Deal deal = find_deal({has(1, 0, {{6, 7}, {7, 8}, kNone}), has(1, 2, {kNone, {7, 8}, {6, 7}})});
  expect(deal.kind == Deal::Kind::kParts, "there is one");
  expect_equal(deal.version, int64_t{7}, "the step");
  expect(deal.givers == std::vector<int32_t>{0, 0, 1}, "who gives");
  expect_equal(deal.number, int64_t{1}, "the deal");
}

void who_is_ahead_goes_back(void**) {
  const Deal deal = find_deal({has(1, 0, {{7, 8}, {7, 8}, kNone}), has(1, 2, {kNone, {7, 8}, {6, 7}})});
  expect_equal(deal.version, int64_t{7}, "the step");
}

void a_rank_that_had_taken_its_step_back_before_it_died_holds_the_others_back(void**) {
  const Deal deal = find_deal({has(1, 0, {{7, 8}, {7, 7}}), {}});
  expect_equal(deal.version, int64_t{7}, "the step");
}

void a_step_that_is_left_nowhere_is_lost(void**) {
  expect(find_deal({has(1, 0, {{7, 8}, kNone})}).kind == Deal::Kind::kLost, "nobody reaches the part");
  expect(find_deal({has(1, 0, {{7, 8}, {4, 5}})}).kind == Deal::Kind::kLost, "it is too old");
  expect(find_deal({has(1, 0, {kNone, {7, 8}})}).kind == Deal::Kind::kLost, "the own part is half loaded");
}

void ranks_that_are_new_have_nothing(void**) {
  const Deal deal = find_deal({{}, has(3, 1, {{4, 5}, {4, 5}})});
  expect(deal.kind == Deal::Kind::kParts && deal.version == 5 && deal.teller == 1, "the other one gives");
  expect(deal.givers == std::vector<int32_t>{1, 1}, "all");
}

/// A rank that has dropped the old deal knows that all have finished the new one.
void the_newest_deal_that_is_common_and_whole_is_taken(void**) {
  Holdings both = has(2, 0, {{5, 5}, kNone});
  both.hands.push_back({1, 0, {{5, 5}, {5, 6}, {5, 6}}});
  expect_equal(find_deal({both, has(1, 1, {{5, 6}, {5, 5}, {5, 6}})}).number, int64_t{1}, "the other has only the old one");
  expect_equal(find_deal({both, has(2, 1, {{5, 6}, {5, 5}})}).number, int64_t{2}, "the other has only the new one");
  const Deal old = find_deal({both});
  expect(old.kind == Deal::Kind::kParts && old.number == 1, "of the new one the second rank's part is not known yet");
}

void before_the_first_step_there_is_nothing_to_deal_out(void**) {
  expect(find_deal({{}, {}}).kind == Deal::Kind::kFresh, "fresh");
  expect(find_deal({{}, {false, {}}}).kind == Deal::Kind::kLost, "one has loaded a state");
}

void what_ranks_tell_arrives(void**) {
  Holdings told = has(2, 1, {{5, 5}, {-1, 7}});
  told.hands.push_back({1, 0, {{5, 6}}});
  const Holdings heard = optim::read_holdings(optim::write_holdings(told));
  expect(heard.hands.size() == 2 && heard.hands[0].versions == told.hands[0].versions && heard.hands[0].rank == 1 &&
             heard.hands[1].number == 1 && !heard.is_fresh,
         "as it was told");
  const std::string bytes = optim::write_holdings(told);
  expect_error(DDP_ERROR_INTERNAL, [&] { (void)optim::read_holdings(bytes.substr(0, bytes.size() - 1)); });
  expect_error(DDP_ERROR_INTERNAL, [&] { (void)optim::read_holdings(optim::write_holdings(has(1, 2, {{0, 0}}))); });
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(all_go_on_from_the_newest_step_that_all_have_made),
      ddp_test(who_is_ahead_goes_back),
      ddp_test(a_rank_that_had_taken_its_step_back_before_it_died_holds_the_others_back),
      ddp_test(a_step_that_is_left_nowhere_is_lost),
      ddp_test(ranks_that_are_new_have_nothing),
      ddp_test(the_newest_deal_that_is_common_and_whole_is_taken),
      ddp_test(before_the_first_step_there_is_nothing_to_deal_out),
      ddp_test(what_ranks_tell_arrives),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
