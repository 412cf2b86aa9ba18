// SPDX-License-Identifier: Apache-2.0
// Scale, norms, counts and conversions of all instruction sets that this machine has, against naive loops.
#include "device/cpu/arrays.hpp"

#include <bit>

#include "core/float16.hpp"
#include "support/check.hpp"
#include "unit/device/oracle.hpp"

constexpr ddp_dtype kFloats[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double element(ddp_dtype dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DDP_F32: return static_cast<double>(load<float>(data, i));
    case DDP_F64: return load<double>(data, i);
    case DDP_F16: return decode_half(load<uint16_t>(data, i));
    default: return decode_bfloat(load<uint16_t>(data, i));
  }
}

void set_element(ddp_dtype dtype, void* data, int64_t i, double value) {
  switch (dtype) {
    case DDP_F32: return store(data, i, static_cast<float>(value));
    case DDP_F64: return store(data, i, value);
    case DDP_F16: return store(data, i, encode_half(value));
    default: return store(data, i, encode_bfloat(value));
  }
}

/// Whole numbers and quarters: their sums and sums of squares are exact in F64, so the order does not matter.
std::string exact_values(ddp_dtype dtype, int64_t count) {
  std::mt19937_64 random(7);
  std::string data(static_cast<size_t>(count * dtype_size(dtype)), '\0');
  for (int64_t i = 0; i < count; ++i) set_element(dtype, data.data(), i, static_cast<double>(random() % 255) / 4 - 30);
  return data;
}

std::string random_bits(ddp_dtype dtype, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string data(static_cast<size_t>(count * dtype_size(dtype)), '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  return data;
}

template <class Test>
void each_set(Test test) {
  for (const char* set : kAllSets)
    if (cpu::set_instruction_set(set)) test();
}

ddp_case(an_element_above_the_limit_becomes_it) {
  each_set([] {
    for (const ddp_dtype dtype : kFloats)
      for (const double limit : {0.5, 3.0, 1e30})
        for (const int64_t count : {0, 1, 50, 777, 9001}) {
          const std::string before = random_bits(dtype, count, 9);
          std::string after = before;
          cpu::limit(dtype, after.data(), count, limit);
          std::string bound(8, '\0');
          set_element(dtype, bound.data(), 0, limit);
          for (int64_t i = 0; i < count; ++i) {
            const double x = element(dtype, before.data(), i);
            const double got = element(dtype, after.data(), i);
            const double high = element(dtype, bound.data(), 0);
            if (std::isnan(x))
              assert_true(std::isnan(got));
            else
              assert_true(got == (x > high ? high : x < -high ? -high : x) && std::signbit(got) == std::signbit(x));
          }
        }
  });
}

double norm_terms(ddp_dtype dtype, const void* data, int64_t count, double p) {
  if (p == kInfinity) return cpu::largest_magnitude(dtype, data, count);
  ExactSum sum;
  cpu::add_norm_terms(dtype, data, count, p, sum);
  return sum.value();
}

ddp_case(norms_equal_the_naive_sums_where_these_are_exact) {
  each_set([] {
    for (const ddp_dtype dtype : kFloats)
      for (const int64_t count : {0, 1, 7, 31, 32, 33, 100, 8192, 20000}) {
        const std::string data = exact_values(dtype, count);
        double one = 0, two = 0, most = 0;
        for (int64_t i = 0; i < count; ++i) {
          const double x = std::fabs(element(dtype, data.data(), i));
          one += x, two += x * x, most = std::max(most, x);
        }
        assert_true(norm_terms(dtype, data.data(), count, 1) == one);
        assert_true(norm_terms(dtype, data.data(), count, 2) == two);
        assert_true(norm_terms(dtype, data.data(), count, kInfinity) == most);
      }
  });
}

ddp_case(norms_of_inexact_values_are_the_same_bits_everywhere) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  for (const ddp_dtype dtype : kFloats)
    for (const int64_t count : {5, 1000, 30011}) {
      std::string data(static_cast<size_t>(count * dtype_size(dtype)), '\0');
      for (int64_t i = 0; i < count; ++i) set_element(dtype, data.data(), i, normal(random));
      for (const double p : {1.0, 2.0, kInfinity}) {
        assert_true(cpu::set_instruction_set("portable"));
        const double portable = norm_terms(dtype, data.data(), count, p);
        each_set([&] { assert_true(norm_terms(dtype, data.data(), count, p) == portable); });
      }
    }
}

ddp_case(parts_at_block_boundaries_give_the_norm_of_the_whole) {
  std::mt19937 random(23);
  std::normal_distribution<double> normal;
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16}) {
    const int64_t count = 20'000;
    std::vector<std::byte> data(static_cast<size_t>(count * dtype_size(dtype)));
    for (int64_t i = 0; i < count; ++i) set_element(dtype, data.data(), i, normal(random));
    for (int round = 0; round < 20; ++round) {
      ExactSum sum;
      for (int64_t at = 0; at < count;) {
        const int64_t part = std::min<int64_t>(count - at, static_cast<int64_t>(1 + random() % 6) * cpu::kNormBlock);
        cpu::add_norm_terms(dtype, data.data() + at * dtype_size(dtype), part, 2, sum);
        at += part;
      }
      assert_true(sum.value() == norm_terms(dtype, data.data(), count, 2));
    }
  }
}

ddp_case(a_nan_gives_a_nan_norm_wherever_it_stands) {
  each_set([] {
    for (const ddp_dtype dtype : kFloats)
      for (const int64_t at : {0, 5, 63, 8192, 9000}) {
        std::string data = exact_values(dtype, 9001);
        set_element(dtype, data.data(), 3, kInfinity);
        for (const double p : {1.0, 2.0, kInfinity}) assert_true(norm_terms(dtype, data.data(), 9001, p) == kInfinity);
        set_element(dtype, data.data(), at, std::numeric_limits<double>::quiet_NaN());
        for (const double p : {1.0, 2.0, kInfinity}) assert_true(std::isnan(norm_terms(dtype, data.data(), 9001, p)));
      }
  });
}

ddp_case(every_nonfinite_element_is_counted) {
  each_set([] {
    for (const ddp_dtype dtype : kFloats)
      for (const int64_t count : {0, 1, 63, 64, 65, 1000, 50000}) {
        const std::string data = random_bits(dtype, count, 3);
        int64_t expected = 0;
        for (int64_t i = 0; i < count; ++i) expected += !std::isfinite(element(dtype, data.data(), i));
        assert_int_equal(cpu::count_nonfinite(dtype, data.data(), count), expected);
      }
    std::string all(200000, '\xff');  // only NaN: lanes that count must not overflow
    for (const ddp_dtype dtype : kFloats)
      assert_int_equal(cpu::count_nonfinite(dtype, all.data(), 200000 / dtype_size(dtype)), 200000 / dtype_size(dtype));
  });
}

ddp_case(a_scaled_element_is_the_product_rounded_once) {
  each_set([] {
    for (const ddp_dtype dtype : kFloats)
      for (const double factor : {0.0, 1.0, -0.5, 1.0 / 3.0, 1024.0, 1e-30})
        for (const int64_t count : {0, 1, 50, 777, 9001}) {
          const std::string before = random_bits(dtype, count, 5);
          const auto size = static_cast<size_t>(dtype_size(dtype));
          std::string after(size, '\x11');  // one element off, so that long arrays have a beginning of their own
          after += before;
          cpu::scale(dtype, after.data() + size, count, factor);
          assert_true(after.substr(0, size) == std::string(size, '\x11'));
          after.erase(0, size);
          for (int64_t i = 0; i < count; ++i) {
            const double x = element(dtype, before.data(), i);
            const double product =
                dtype == DDP_F64 ? x * factor : static_cast<double>(static_cast<float>(x) * static_cast<float>(factor));
            std::string expected(8, '\0');
            set_element(dtype, expected.data(), 0, std::isnan(product) ? std::numeric_limits<double>::quiet_NaN() : product);
            assert_memory_equal(expected.data(), after.data() + static_cast<size_t>(i) * size, size);
          }
        }
  });
}

void check_conversion(ddp_dtype from, ddp_dtype to, const std::string& source) {
  const int64_t count = static_cast<int64_t>(source.size()) / dtype_size(from);
  std::string target(static_cast<size_t>(count * dtype_size(to) + 8), '\x55');
  cpu::convert(from, source.data(), to, target.data(), count);
  assert_true(target.substr(target.size() - 8) == std::string(8, '\x55'));
  for (int64_t i = 0; i < count; ++i) {
    const double x = element(from, source.data(), i);
    if (std::isnan(x)) {
      assert_true(std::isnan(element(to, target.data(), i)));
      continue;
    }
    std::string expected(8, '\0');
    set_element(to, expected.data(), 0, x);
    const auto size = static_cast<size_t>(dtype_size(to));
    assert_memory_equal(expected.data(), target.data() + static_cast<size_t>(i) * size, size);
  }
}

ddp_case(conversions_round_once_to_nearest_even) {
  each_set([] {
    for (const ddp_dtype from : kFloats)
      for (const ddp_dtype to : kFloats)
        for (const int64_t count : {0, 1, 33, 5000}) {
          check_conversion(from, to, random_bits(from, count, 9));
          check_conversion(from, to, exact_values(from, count));
        }
  });
}

/// Around each half of a 16-bit number's last place, where F64 to F32 to 16 bits would round twice.
ddp_case(conversions_of_ties_and_their_neighbours_are_right) {
  each_set([] {
    for (const ddp_dtype to : {DDP_F16, DDP_BF16})
      for (const ddp_dtype from : {DDP_F32, DDP_F64}) {
        std::string source;
        for (uint32_t bits = 0; bits < 0x7c00u; bits += 3) {
          const auto low = static_cast<uint16_t>(bits);
          const auto high = static_cast<uint16_t>(bits + 1);
          const double tie = to == DDP_F16 ? (decode_half(low) + std::min(decode_half(high), 65536.0)) / 2
                                           : (decode_bfloat(low) + decode_bfloat(high)) / 2;
          for (const double x : {tie,
                                 from == DDP_F64 ? std::nextafter(tie, 0.0)
                                                 : static_cast<double>(std::nextafterf(static_cast<float>(tie), 0.0f)),
                                 from == DDP_F64 ? std::nextafter(tie, 1e300)
                                                 : static_cast<double>(std::nextafterf(static_cast<float>(tie), 1e38f))}) {
            std::string one(static_cast<size_t>(dtype_size(from)), '\0');
            set_element(from, one.data(), 0, x);
            source += one;
          }
        }
        check_conversion(from, to, source);
      }
  });
}

ddp_case(every_16_bit_value_converts_like_the_scalar_functions) {
  std::string all(131072, '\0');
  for (int64_t i = 0; i < 65536; ++i) store(all.data(), i, static_cast<uint16_t>(i));
  each_set([&] {
    std::string floats(262144, '\0');
    cpu::convert(DDP_F16, all.data(), DDP_F32, floats.data(), 65536);
    for (int64_t i = 0; i < 65536; ++i)
      assert_int_equal(load<uint32_t>(floats.data(), i), std::bit_cast<uint32_t>(half_to_float(static_cast<uint16_t>(i))));
    const std::string source = random_bits(DDP_F32, 65536, 21);
    std::string halves(131072, '\0');
    cpu::convert(DDP_F32, source.data(), DDP_F16, halves.data(), 65536);
    for (int64_t i = 0; i < 65536; ++i)
      assert_int_equal(load<uint16_t>(halves.data(), i), float_to_half(load<float>(source.data(), i)));
    cpu::convert(DDP_F32, source.data(), DDP_BF16, halves.data(), 65536);
    for (int64_t i = 0; i < 65536; ++i)
      assert_int_equal(load<uint16_t>(halves.data(), i), float_to_bfloat(load<float>(source.data(), i)));
  });
}
