// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.hpp"

#include "support/check.hpp"

constexpr ddp_dtype kAll[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_I64, DDP_U8, DDP_C64, DDP_C128};

ddp_case(every_dtype_has_the_size_that_its_name_says) {
  for (const ddp_dtype dtype : kAll) {
    const std::string name = dtype_name(dtype);
    const std::string bits = name.substr(name.find_first_of("0123456789"));
    expect_equal(dtype_size(dtype) * 8, std::stoll(bits), name);
    expect(is_dtype(dtype), name);
  }
}

ddp_case(names_are_unique) {
  std::set<std::string> names;
  for (const ddp_dtype dtype : kAll) names.insert(dtype_name(dtype));
  expect_equal(names.size(), std::size(kAll), "number of names");
}

ddp_case(other_numbers_are_no_dtype) {
  for (const int number : {-1, 0, 10, 100}) {
    const auto dtype = static_cast<ddp_dtype>(number);
    expect(!is_dtype(dtype), std::to_string(number));
    expect(!is_floating(dtype), std::to_string(number));
    expect_equal(std::string(dtype_name(dtype)), "unknown dtype", std::to_string(number));
  }
}

ddp_case(only_the_16_bit_floats_are_added_in_another_type) {
  for (const ddp_dtype dtype : kAll) {
    const bool small = is_floating(dtype) && dtype_size(dtype) == 2;
    expect(accumulator_dtype(dtype) == (small ? DDP_F32 : dtype), dtype_name(dtype));
  }
}

ddp_case(complex_types_have_two_parts_of_half_the_size) {
  for (const ddp_dtype dtype : kAll) {
    expect_equal(is_complex(dtype), std::string(dtype_name(dtype))[0] == 'C', dtype_name(dtype));
    expect_equal(dtype_size(part_dtype(dtype)) * (is_complex(dtype) ? 2 : 1), dtype_size(dtype), dtype_name(dtype));
    expect(!is_complex(dtype) || is_floating(part_dtype(dtype)), dtype_name(dtype));
  }
}

ddp_case(floating_types_are_named_with_an_f) {
  for (const ddp_dtype dtype : kAll)
    expect_equal(is_floating(dtype), std::string(dtype_name(dtype)).find('F') != std::string::npos, dtype_name(dtype));
}
