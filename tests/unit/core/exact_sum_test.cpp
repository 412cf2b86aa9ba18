// SPDX-License-Identifier: Apache-2.0
// The exact sum against sums that are exact by construction, and against itself in other orders.
#include "core/exact_sum.hpp"

#include "support/check.hpp"

double sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

ddp_case(one_term_comes_back_whatever_its_exponent) {
  for (const double term : {0.0, 1.0, 0.1, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 3.0e-310, 1e200})
    expect_equal(sum_of({term}), term, "the sum of one term is the term");
}

ddp_case(integers_and_powers_of_two_sum_exactly) {
  std::vector<double> terms;
  int64_t wanted = 0;
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    const auto term = static_cast<int64_t>(random() >> 24);
    terms.push_back(static_cast<double>(term));
    wanted += term;
  }
  expect(sum_of(terms) == static_cast<double>(wanted), "the sum is that of the integers, rounded once");
  expect(sum_of({0x1p53, 1.0, 1.0}) == 0x1p53 + 2, "two ones behind 2^53 are not lost");
  expect(sum_of({0x1p53, 1.0}) == 0x1p53, "half a unit is rounded to even");
  expect(sum_of({0x1p53, 1.0, 0x1p-1000}) == 0x1p53 + 2, "a trace above half a unit rounds up");
}

ddp_case(order_and_division_change_no_bit) {
  std::mt19937_64 random(11);
  std::vector<double> terms;
  for (int i = 0; i < 3000; ++i)
    terms.push_back(std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 300) - 200));
  const double wanted = sum_of(terms);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(terms.begin(), terms.end(), random);
    ExactSum parts[3], whole;
    for (size_t i = 0; i < terms.size(); ++i) parts[random() % 3].add(terms[i]);
    for (const ExactSum& part : parts) whole.join(part);
    expect(whole.value() == wanted, "the sum does not depend on order and division");
  }
}

ddp_case(infinities_and_nans_are_kept_apart) {
  const double infinity = std::numeric_limits<double>::infinity();
  expect(sum_of({1.0, infinity}) == infinity, "an infinite term gives infinity");
  expect(std::isnan(sum_of({infinity, std::nan(""), 1.0})), "a NaN gives NaN");
  expect(sum_of({1.7976931348623157e308, 1.7976931348623157e308}) == infinity, "a sum that is too large is infinite");
  ExactSum large, broken;
  large.add(1.7976931348623157e308);
  large.add(1.7976931348623157e308);
  broken.add(infinity);
  expect(large.all_finite() && !broken.all_finite(), "only a term can be not finite");
}
