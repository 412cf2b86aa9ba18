// SPDX-License-Identifier: Apache-2.0
// The generator against the vectors published with Random123 (file kat_vectors) and with SplitMix64.
#include "core/random.hpp"

#include "support/check.hpp"

void expect_block(PhiloxCounter counter, PhiloxKey key, PhiloxCounter wanted, const char* what) {
  const PhiloxCounter got = philox4x32(counter, key);
  for (size_t i = 0; i < 4; ++i) expect_equal(got[i], wanted[i], std::string(what) + ", word " + std::to_string(i));
}

ddp_case(philox_gives_the_published_blocks) {
  expect_block({0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, "all zero");
  expect_block({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, "all ones");
  expect_block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, "digits of pi");
}

ddp_case(a_word_of_the_stream_is_the_low_half_of_its_block) {
  expect_equal(philox_u64(0, 0, 0), 0xe169c58d6627e8d5U, "the first word");
  expect_equal(philox_u64(0x299f31d0a4093822U, 0x0370734413198a2eU, 0x85a308d3243f6a88U), 0x94fdccebd16cfe09U,
               "the word of the digits of pi");
}

ddp_case(mix64_gives_the_published_splitmix_sequence) {
  const uint64_t wanted[] = {6457827717110365317U, 3203168211198807973U, 9817491932198370423U, 4593380528125082431U,
                             16408922859458223821U};
  uint64_t state = 1234567;
  for (const uint64_t word : wanted) expect_equal(mix64(state += 0x9e3779b97f4a7c15U), word, "SplitMix64 from 1234567");
}
