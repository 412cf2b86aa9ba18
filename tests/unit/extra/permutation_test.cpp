// SPDX-License-Identifier: Apache-2.0
// The order is a bijection, frozen, and looks like a fair draw. Golden values come from an implementation in another
// language, written from the description in the header.

#include "extra/sampler.hpp"
#include "support/check.hpp"

std::vector<uint64_t> head(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t length) {
  const extra::Permutation order(count, seed, epoch);
  std::vector<uint64_t> result;
  for (uint64_t p = 0; p < length; ++p) result.push_back(order(p));
  return result;
}

void expect_head(uint64_t count, uint64_t seed, uint64_t epoch, const std::vector<uint64_t>& wanted) {
  const std::vector<uint64_t> got = head(count, seed, epoch, wanted.size());
  for (size_t p = 0; p < wanted.size(); ++p)
    expect_equal(got[p], wanted[p], std::to_string(count) + " things, position " + std::to_string(p));
}

ddp_case(the_sequence_is_frozen) {
  expect_head(1, 0, 0, {0});
  expect_head(2, 0, 0, {0, 1});
  expect_head(10, 0, 0, {3, 7, 4, 9, 1, 2, 5, 8, 6, 0});
  expect_head(10, 0, 1, {3, 5, 2, 9, 8, 7, 6, 1, 4, 0});
  expect_head(10, 1, 0, {7, 0, 4, 6, 5, 3, 1, 9, 2, 8});
  expect_head(10, ~uint64_t{0}, 0, {8, 5, 9, 2, 6, 3, 7, 0, 1, 4});
  expect_head(1797, 42, 7, {702, 244, 1288, 103, 787, 1579, 604, 1719, 1010, 1459});
  expect_head(50000, 0, 0, {5197, 9776, 16391, 12557, 44881, 6444, 10851, 11898, 586, 17960});
  expect_head(1000003, uint64_t{1} << 40, uint64_t{1} << 33, {886330, 887828, 752452, 352082, 930233, 746414});
  expect_head(uint64_t{1} << 62, 5, 5,
              {4563662749532436770U, 903846749415191839U, 3256077036454013239U, 2839244184554249367U});
  expect_head((uint64_t{1} << 63) - 1, uint64_t{1} << 63, (uint64_t{1} << 63) - 1,
              {7937038897053545722U, 984893603761351491U, 4084118958418758048U, 5830807262595425590U});
}

ddp_case(every_thing_has_exactly_one_place) {
  for (const uint64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 99, 100, 101, 1000, 1797, 65535, 65536, 65537}) {
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<uint64_t> order = head(count, 17, epoch, count);
      std::sort(order.begin(), order.end());
      for (uint64_t i = 0; i < count; ++i) expect_equal(order[i], i, "sorted order of " + std::to_string(count));
    }
  }
}

/// How many standard deviations the chi-square statistic of `counts` is away from its mean, if all were equally likely.
double chi_square_distance(const std::vector<int>& counts, double expected) {
  double chi = 0;
  for (const int count : counts) chi += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

// Seeds are fixed, so these two either always pass or always fail; 4 deviations would be a draw of one in ten thousand.
ddp_case(all_orders_of_few_things_are_equally_frequent) {
  for (const uint64_t count : {2, 3, 4, 5, 6}) {
    uint64_t orders = 1;
    for (uint64_t i = 2; i <= count; ++i) orders *= i;
    std::vector<int> seen(46656);  // 6^6, by the order's digits
    for (uint64_t epoch = 0; epoch < 200 * orders; ++epoch) {
      uint64_t code = 0;
      for (const uint64_t thing : head(count, 3, epoch, count)) code = code * 6 + thing;
      ++seen[code];
    }
    std::erase(seen, 0);
    expect_equal(seen.size(), orders, "orders of " + std::to_string(count) + " things that came up");
    expect(std::abs(chi_square_distance(seen, 200)) < 4,
           "orders of " + std::to_string(count) + " things are equally frequent");
  }
}

ddp_case(every_thing_is_equally_often_at_every_place) {
  constexpr uint64_t kCount = 61;
  constexpr int kEpochs = 61 * 100;
  std::vector<int> seen(kCount * kCount);
  std::vector<int> steps(kCount);  // distance between neighbours, modulo the count
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<uint64_t> order = head(kCount, 99, epoch, kCount);
    for (uint64_t p = 0; p < kCount; ++p) ++seen[p * kCount + order[p]];
    ++steps[(order[7] + kCount - order[6]) % kCount];
  }
  // One row fixes 60 of its 61 counts, and so does one column: 60 * 60 degrees of freedom, not 61 * 61 - 1.
  double chi = 0;
  for (const int count : seen) chi += (count - 100.0) * (count - 100.0) / 100.0;
  expect(std::abs(chi - 3600) / std::sqrt(7200.0) < 4, "things and places are independent");
  expect_equal(steps[0], 0, "things that follow themselves");
  steps.erase(steps.begin());
  expect(std::abs(chi_square_distance(steps, kEpochs / 60.0)) < 4, "neighbours are independent");
}
