// SPDX-License-Identifier: Apache-2.0
// Hashes, by the kernel on the host: the naive one, word after word; and that they notice what they should.
#include "modules/cuda/kernels/hash_words.hpp"

#include "modules/cuda/kernels/launchers.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

std::vector<uint64_t> hashes(const std::vector<ddp_gpu_span>& spans) {
  std::vector<uint64_t> out(spans.size(), 77);
  expect_equal(cuda::hash(spans.data(), static_cast<int64_t>(spans.size()), out.data(), nullptr), 0, "code");
  return out;
}

ddp_case(a_hash_is_the_sum_of_its_words) {
  std::vector<WildArray> arrays;
  std::vector<ddp_gpu_span> spans;
  for (const int64_t offset : {0, 1, 4, 16})
    for (const int64_t count : {0, 1, 7, 8, 9, 15, 16, 17, 31, 4095, 4096, 32767, 32768, 32769, 100003})
      arrays.emplace_back(DDP_U8, count, offset).fill(static_cast<uint64_t>(count + 1));
  for (WildArray& array : arrays) spans.push_back({array.data(), nullptr, array.count()});
  const auto got = hashes(spans);
  for (size_t k = 0; k < arrays.size(); ++k)
    expect_equal(got[k], cuda::hash_of(arrays[k].data(), static_cast<uint64_t>(arrays[k].count())),
                 std::to_string(arrays[k].count()) + " bytes");
}

ddp_case(many_arrays_take_many_launches) {
  WildArray bytes(DDP_U8, 4000);
  bytes.fill(3);
  std::vector<ddp_gpu_span> spans;
  for (int64_t k = 0; k < 900; ++k) spans.push_back({bytes.as<char>() + k, nullptr, k % 3 == 0 ? k % 40 : 0});
  const auto got = hashes(spans);
  for (size_t k = 0; k < spans.size(); ++k)
    expect_equal(got[k], cuda::hash_of(spans[k].from, static_cast<uint64_t>(spans[k].count)), "hash");
}

ddp_case(what_differs_has_another_hash) {
  WildArray bytes(DDP_U8, 4096);
  bytes.fill(4);
  std::set<uint64_t> seen{cuda::hash_of(bytes.data(), 4096), cuda::hash_of(bytes.data(), 4095)};
  for (size_t i = 0; i < 4096; ++i) {  // one bit
    bytes.as<unsigned char>()[i] ^= 1;
    seen.insert(cuda::hash_of(bytes.data(), 4096));
    bytes.as<unsigned char>()[i] ^= 1;
  }
  auto* const words = bytes.as<uint64_t>();
  for (size_t i = 1; i < 512; ++i) {  // two words in each other's places
    std::swap(words[0], words[i]);
    seen.insert(cuda::hash_of(bytes.data(), 4096));
    std::swap(words[0], words[i]);
  }
  expect_equal(seen.size(), size_t{2 + 4096 + 511}, "hashes");
}

ddp_case(zeros_of_different_lengths_differ) {
  const WildArray zeros(DDP_U8, 64);
  std::set<uint64_t> seen;
  for (uint64_t length = 0; length <= 64; ++length) seen.insert(cuda::hash_of(zeros.data(), length));
  expect_equal(seen.size(), size_t{65}, "hashes");
}
