// SPDX-License-Identifier: Apache-2.0
// The 16-bit floats against conversions by way of frexp and nearbyint.
#include "core/float16.hpp"

#include "support/check.hpp"
#include "unit/device/oracle.hpp"

ddp_case(every_half_has_its_value) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double expected = decode_half(bits);
    const double got = static_cast<double>(half_to_float(bits));
    assert_true(std::isnan(expected) ? std::isnan(got) : got == expected && std::signbit(got) == std::signbit(expected));
  }
}

ddp_case(every_half_and_bfloat_survives_the_way_through_f32) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const bool half_nan = (bits & 0x7fffu) > 0x7c00u;
    assert_int_equal(float_to_half(half_to_float(bits)), half_nan ? bits | 0x200u : bits);
    const bool bfloat_nan = (bits & 0x7fffu) > 0x7f80u;
    assert_int_equal(float_to_bfloat(bfloat_to_float(bits)), bfloat_nan ? bits | 0x40u : bits);
  }
}

/// Every 16-bit number, the middle to the next one, and the F64 neighbours of that middle; both signs.
template <class Decode, class Encode, class Convert>
void check_around_ties(uint16_t end, double beyond, Decode decode, Encode encode, Convert convert) {
  for (uint16_t bits = 0; bits < end; ++bits) {
    const double low = decode(bits);
    const double high = bits + 1 == end ? beyond : decode(static_cast<uint16_t>(bits + 1));
    const double tie = (low + high) / 2;
    for (const double x : {low, tie, std::nextafter(tie, low), std::nextafter(tie, high)}) {
      assert_int_equal(convert(x), encode(x));
      assert_int_equal(convert(-x), encode(-x));
    }
  }
}

ddp_case(doubles_are_rounded_once_to_nearest_even) {
  check_around_ties(0x7c00, 65536.0, decode_half, encode_half, double_to_half);
  check_around_ties(0x7f80, 0x1p128, decode_bfloat, encode_bfloat, double_to_bfloat);
}

ddp_case(floats_are_rounded_to_nearest_even) {
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    assert_int_equal(float_to_half(x), encode_half(static_cast<double>(x)));
    assert_int_equal(float_to_bfloat(x), encode_bfloat(static_cast<double>(x)));
  }
}

ddp_case(too_large_becomes_infinity_and_too_small_becomes_zero) {
  assert_int_equal(float_to_half(65519.996f), 0x7bff);
  assert_int_equal(float_to_half(65520.0f), 0x7c00);
  assert_int_equal(float_to_half(-1e30f), 0xfc00);
  assert_int_equal(float_to_half(0x1p-25f), 0x0000);
  assert_int_equal(float_to_half(std::nextafterf(0x1p-25f, 1.0f)), 0x0001);
  assert_int_equal(float_to_half(-0x1p-149f), 0x8000);
  assert_int_equal(float_to_bfloat(std::numeric_limits<float>::max()), 0x7f80);
}

ddp_case(a_nan_stays_a_quiet_nan_with_its_sign) {
  assert_int_equal(float_to_half(std::bit_cast<float>(0x7f800001u)), 0x7e00);
  assert_int_equal(float_to_half(std::bit_cast<float>(0xffc02000u)), 0xfe01);
  assert_int_equal(float_to_bfloat(std::bit_cast<float>(0xff800001u)), 0xffc0);
  assert_int_equal(std::bit_cast<uint32_t>(half_to_float(0x7c01)), 0x7fc02000u);
  assert_int_equal(double_to_half(std::numeric_limits<double>::quiet_NaN()), 0x7e00);
}

static_assert(float_to_half(1.0f) == 0x3c00 && half_to_float(0x3c00) == 1.0f, "usable at compile time");
