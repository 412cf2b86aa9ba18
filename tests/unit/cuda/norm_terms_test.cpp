// SPDX-License-Identifier: Apache-2.0
// Norms, by the kernels on the host, compared with the CPU's: the same words of the exact sum, the same largest magnitude.
#include "modules/cuda/kernels/norm_terms.hpp"

#include <bit>

#include "core/exact_sum.hpp"
#include "device/cpu/arrays.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

std::vector<WildArray> some_arrays(ddp_dtype dtype, bool wild) {
  std::vector<WildArray> arrays;
  for (const int64_t count : odd_lengths())
    arrays.emplace_back(dtype, count, count % 3).fill(static_cast<uint64_t>(count), wild);
  return arrays;
}

std::vector<ddp_gpu_span> spans_of(std::vector<WildArray>& arrays) {
  std::vector<ddp_gpu_span> spans;
  for (WildArray& array : arrays) spans.push_back({array.data(), nullptr, array.count()});
  return spans;
}

ddp_case(the_words_are_the_cpus) {
  for (const ddp_dtype dtype : kFloats)
    for (const int32_t p : {1, 2})
      for (const bool wild : {false, true}) {
        auto arrays = some_arrays(dtype, wild);
        const auto spans = spans_of(arrays);
        std::array<int64_t, ExactSum::kWords> words{};
        expect_equal(cuda::add_norm_terms(spans.data(), static_cast<int64_t>(spans.size()), dtype, p, words.data(), nullptr),
                     0, "code");
        ExactSum sum;
        for (const WildArray& array : arrays) cpu::add_norm_terms(dtype, array.data(), array.count(), p, sum);
        for (size_t i = 0; i < words.size(); ++i)
          expect_equal(words[i], sum.words()[i],
                       std::string(dtype_name(dtype)) + ", p " + std::to_string(p) + ", word " + std::to_string(i));
      }
}

ddp_case(words_are_added_to) {
  WildArray array(DDP_F32, 3000);
  array.fill(1, false);
  const ddp_gpu_span span{array.data(), nullptr, array.count()};
  std::array<int64_t, ExactSum::kWords> once{}, twice{};
  static_cast<void>(cuda::add_norm_terms(&span, 1, DDP_F32, 2, once.data(), nullptr));
  for (int k = 0; k < 2; ++k) static_cast<void>(cuda::add_norm_terms(&span, 1, DDP_F32, 2, twice.data(), nullptr));
  for (size_t i = 0; i < once.size(); ++i) expect_equal(twice[i], 2 * once[i], "word " + std::to_string(i));
}

ddp_case(digits_are_those_of_the_exact_sum) {
  for (const double term : {0.0, 1.0, 0.1, 1e300, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 3e-310, kInfinity,
                            -kInfinity + kInfinity}) {
    ExactSum sum;
    sum.add(term);
    const cuda::Digits digits = cuda::digits_of(term);
    std::array<int64_t, ExactSum::kWords + 2> words{};
    for (size_t k = 0; k < 3; ++k) words[digits.first + k] += static_cast<int64_t>(digits.digit[k]);
    for (size_t i = 0; i < ExactSum::kWords; ++i) expect_equal(words[i], sum.words()[i], "word " + std::to_string(i));
  }
}

ddp_case(many_arrays_take_many_launches) {
  WildArray array(DDP_BF16, 5000);
  array.fill(2, false);
  std::vector<ddp_gpu_span> spans;
  ExactSum sum;
  for (int64_t k = 0; k < 1500; ++k) {
    spans.push_back({array.as<uint16_t>() + k, nullptr, k % 5});
    cpu::add_norm_terms(DDP_BF16, array.as<uint16_t>() + k, k % 5, 2, sum);
  }
  std::array<int64_t, ExactSum::kWords> words{};
  expect_equal(cuda::add_norm_terms(spans.data(), 1500, DDP_BF16, 2, words.data(), nullptr), 0, "code");
  expect(words == sum.words(), "the words");
}

ddp_case(the_largest_is_the_cpus) {
  for (const ddp_dtype dtype : kFloats) {
    for (const int64_t count : {0, 1, 9, 300, 8193, 20000}) {
      WildArray array(dtype, count, count % 2);
      array.fill(static_cast<uint64_t>(count), false);
      const ddp_gpu_span span{array.data(), nullptr, array.count()};
      uint64_t bits = 0;
      expect_equal(cuda::largest(&span, 1, dtype, &bits, nullptr), 0, "code");
      expect_equal(std::bit_cast<double>(bits), cpu::largest_magnitude(dtype, array.data(), array.count()), "the largest");
    }
  }
}

ddp_case(the_largest_of_all_spans_and_before) {
  float numbers[] = {1, -5, 2};
  ddp_gpu_span spans[] = {{numbers, nullptr, 1}, {numbers + 1, nullptr, 2}};
  uint64_t bits = std::bit_cast<uint64_t>(4.0);
  static_cast<void>(cuda::largest(spans, 2, DDP_F32, &bits, nullptr));
  expect_equal(std::bit_cast<double>(bits), 5.0, "-5 is larger than 4");
  bits = std::bit_cast<uint64_t>(6.0);
  static_cast<void>(cuda::largest(spans, 2, DDP_F32, &bits, nullptr));
  expect_equal(std::bit_cast<double>(bits), 6.0, "6 stays");
}

ddp_case(a_nan_is_above_all) {
  float numbers[2000];
  for (float& x : numbers) x = std::numeric_limits<float>::infinity();
  numbers[1234] = -std::numeric_limits<float>::quiet_NaN();
  const ddp_gpu_span span{numbers, nullptr, 2000};
  uint64_t bits = 0;
  static_cast<void>(cuda::largest(&span, 1, DDP_F32, &bits, nullptr));
  expect(std::isnan(std::bit_cast<double>(bits)), "a NaN");
}
