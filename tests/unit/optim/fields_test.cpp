// SPDX-License-Identifier: Apache-2.0
// Numbers in a checkpoint's header read back to the same bits, and nothing else reads as a number.
#include "optim/fields.hpp"

#include <bit>

#include "support/check.hpp"

ddp_case(every_double_comes_back_to_the_bit) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto number = std::bit_cast<double>(random());
    if (number != number) continue;
    const double back = optim::read_number({{"x", optim::number_text(number)}}, "x");
    expect_equal(std::bit_cast<uint64_t>(back), std::bit_cast<uint64_t>(number), optim::number_text(number));
  }
  for (const double number : {0.0, -0.0, 0.1, 1e-8, 0x1p-1074, std::numeric_limits<double>::max()})
    expect_equal(std::bit_cast<uint64_t>(optim::read_number({{"x", optim::number_text(number)}}, "x")),
                 std::bit_cast<uint64_t>(number), "number");
}

ddp_case(texts_are_the_ones_a_person_would_write) {
  expect_equal(optim::number_text(0.999), std::string("0.999"), "decay");
  expect_equal(optim::number_text(0.001), std::string("0.001"), "rate");
  expect_equal(optim::number_text(0), std::string("0"), "zero");
}

ddp_case(a_missing_field_is_a_mismatch_and_is_named) {
  expect_error(DDP_ERROR_MISMATCH, [] { (void)optim::read_number({}, "beta1"); }, {"lacks the field \"beta1\""});
}

ddp_case(what_is_no_number_is_refused) {
  for (const char* text : {"", " 1", "1 ", "1,5", "x", "0x10", "1e999999", "--1"}) {
    const optim::Fields fields{{"x", text}};
    expect_error(DDP_ERROR_IO, [&] { (void)optim::read_number(fields, "x"); }, {"\"x\""});
    expect_error(DDP_ERROR_IO, [&] { (void)optim::read_pair(fields, "x"); });
  }
  for (const char* text : {"", "-1", "1.5", "9223372036854775808", "1e3"})
    expect_error(DDP_ERROR_IO, [&] { (void)optim::read_count({{"x", text}}, "x"); });
  for (const char* text : {"2", "-1", "true"})
    expect_error(DDP_ERROR_IO, [&] { (void)optim::read_flag({{"x", text}}, "x"); });
  for (const char* text : {"1", "1 ", "1  2", "1 2 3", " 1 2"})
    expect_error(DDP_ERROR_IO, [&] { (void)optim::read_pair({{"x", text}}, "x"); });
}

ddp_case(counts_flags_and_pairs_are_read) {
  expect_equal(optim::read_count({{"x", "9223372036854775807"}}, "x"), INT64_MAX, "count");
  expect_equal(optim::read_flag({{"x", "1"}}, "x"), 1, "flag");
  const optim::NumberPair pair = optim::read_pair({{"x", "0.01 1e-05"}}, "x");
  expect(pair.first == 0.01 && pair.second == 1e-5, "pair");
}
