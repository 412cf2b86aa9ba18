// SPDX-License-Identifier: Apache-2.0
#include "core/parameter_set.hpp"

#include "support/check.hpp"

ddp_case(a_set_of_all_has_later_ones) {
  const ParameterSet all;
  expect(all.has(0) && all.has(1000), "all");
}

ddp_case(a_list_has_nothing_else) {
  const ParameterSet some = ParameterSet::of({4, 1});
  for (int32_t index = 0; index < 9; ++index)
    expect_equal(some.has(index), index == 1 || index == 4, "parameter " + std::to_string(index));
  expect(!some.has(1000), "nor later ones");
}

ddp_case(the_rest_has_what_is_not_taken_and_later_ones) {
  const ParameterSet rest = ParameterSet::all_but(6, [](int32_t index) { return index == 0 || index == 3; });
  for (int32_t index = 0; index < 9; ++index)
    expect_equal(rest.has(index), index != 0 && index != 3, "parameter " + std::to_string(index));
  expect(rest.has(1000), "and later ones");
}
