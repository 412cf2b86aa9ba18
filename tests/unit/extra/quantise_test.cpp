// SPDX-License-Identifier: Apache-2.0
// Packed arrays against a naive unpacking in double.
#include "extra/outer/quantise.hpp"

#include "support/check.hpp"

using namespace ddp::outer;

double decode(const std::vector<std::byte>& packed, int64_t count, int32_t bits, int64_t i) {
  const int64_t blocks = (count + 255) / 256, block = i / 256, at = i % 256;
  float scale = 0;
  std::memcpy(&scale, packed.data() + 4 * block, 4);
  const std::byte* const numbers = packed.data() + 4 * blocks + block * (bits == 8 ? 256 : 128);
  int32_t number = 0;
  if (bits == 8) {
    number = static_cast<int8_t>(numbers[at]);
  } else {
    number = (static_cast<int32_t>(numbers[at / 2]) >> (at % 2 == 0 ? 0 : 4)) & 15;
    if (number > 7) number -= 16;
  }
  return static_cast<double>(number) * static_cast<double>(scale);
}

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

ddp_case(an_element_loses_half_a_scale_at_most) {
  for (const int32_t bits : {8, 4})
    for (const int64_t count : {1, 255, 256, 257, 5000}) {
      const std::vector<float> data = random_values(count, static_cast<uint32_t>(count));
      std::vector<std::byte> packed(static_cast<size_t>(packed_bytes(count, bits)));
      std::vector<float> lost(static_cast<size_t>(count));
      quantise(data.data(), count, bits, packed.data(), lost.data());
      for (int64_t i = 0; i < count; ++i) {
        float most = 0;
        for (int64_t k = i / 256 * 256; k < std::min(count, i / 256 * 256 + 256); ++k)
          most = std::max(most, std::fabs(data[static_cast<size_t>(k)]));
        const double half = most / (bits == 8 ? 127.0 : 7.0) / 2;
        const double error = data[static_cast<size_t>(i)] - decode(packed, count, bits, i);
        expect(std::fabs(error) <= half * 1.0001, "element " + std::to_string(i));
        expect(std::fabs(error - lost[static_cast<size_t>(i)]) <= static_cast<double>(most) * 3e-7,
               "what is lost of element " + std::to_string(i));
      }
    }
}

ddp_case(ranks_are_added_in_the_tree) {
  constexpr int64_t kCount = 700;
  for (const int32_t bits : {8, 4})
    for (const int32_t ranks : {1, 2, 3, 5, 8}) {
      const int64_t bytes = packed_bytes(kCount, bits);
      std::vector<std::byte> all(static_cast<size_t>(bytes * ranks));
      std::vector<std::vector<std::byte>> each;
      for (int32_t r = 0; r < ranks; ++r) {
        quantise(random_values(kCount, static_cast<uint32_t>(r + 1)).data(), kCount, bits, all.data() + r * bytes, nullptr);
        each.emplace_back(all.begin() + r * bytes, all.begin() + (r + 1) * bytes);
      }
      std::vector<float> sum(kCount);
      add_quantised(all.data(), bytes, ranks, kCount, bits, static_cast<float>(ranks), sum.data());
      const std::function<float(int32_t, int32_t, int64_t)> add = [&](int32_t lo, int32_t hi, int64_t i) -> float {
        if (hi - lo == 1) return static_cast<float>(decode(each[static_cast<size_t>(lo)], kCount, bits, i));
        int32_t left = 1;
        while (2 * left < hi - lo) left *= 2;
        return add(lo, lo + left, i) + add(lo + left, hi, i);
      };
      for (int64_t i = 0; i < kCount; ++i)
        expect_equal(sum[static_cast<size_t>(i)], add(0, ranks, i) / static_cast<float>(ranks),
                     "element " + std::to_string(i));
    }
}

ddp_case(what_has_no_scale_is_zero_or_nan) {
  for (const int32_t bits : {8, 4}) {
    std::vector<float> data(3 * 256, 0.0F), lost(data.size(), 7.0F), sum(data.size());
    data[256] = 1e-44F;  // too little for a scale
    data[513] = INFINITY;
    std::vector<std::byte> packed(static_cast<size_t>(packed_bytes(std::ssize(data), bits)));
    quantise(data.data(), std::ssize(data), bits, packed.data(), lost.data());
    add_quantised(packed.data(), std::ssize(packed), 1, std::ssize(data), bits, 1, sum.data());
    expect(sum[0] == 0 && lost[0] == 0, "zeros");
    expect(sum[256] == 0 && lost[256] == 1e-44F, "too little, kept for later");
    expect(std::isnan(sum[512]) && std::isnan(sum[767]) && lost[513] == 0 && lost[600] == 0, "not finite");
  }
}
