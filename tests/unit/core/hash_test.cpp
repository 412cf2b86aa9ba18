// SPDX-License-Identifier: Apache-2.0
#include "core/hash.hpp"

#include "support/check.hpp"

uint64_t hash_of(const std::string& text) { return content_hash(text.data(), text.size()); }

ddp_case(the_hash_of_nothing_is_the_published_one) {
  expect_equal(content_hash(nullptr, 0), uint64_t{0x2d06800538d394c2u}, "XXH3 of no bytes, seed 0");
}

ddp_case(pieces_have_the_hash_of_the_whole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7);
  for (const size_t cut : {0, 1, 16, 240, 1024, 4999, 5000}) {
    Hasher hasher;
    hasher.add(text.data(), cut);
    hasher.add(text.data() + cut, text.size() - cut);
    expect_equal(hasher.value(), hash_of(text), "cut at " + std::to_string(cut));
  }
}

ddp_case(asking_for_the_value_does_not_end_the_stream) {
  Hasher hasher;
  hasher.add("ab", 2);
  expect_equal(hasher.value(), hash_of("ab"), "two bytes");
  hasher.add("c", 1);
  expect_equal(hasher.value(), hash_of("abc"), "three bytes");
}

ddp_case(every_bit_counts) {
  std::set<uint64_t> hashes;
  std::string text(300, 'x');
  hashes.insert(hash_of(text));
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    hashes.insert(hash_of(changed));
  }
  expect_equal(hashes.size(), text.size() * 8 + 1, "different hashes");
}
