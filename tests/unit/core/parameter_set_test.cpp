// SPDX-License-Identifier: Apache-2.0
#include "core/parameter_set.hpp"

#include "support/check.hpp"

namespace ddp::test {
namespace {

void a_set_of_all_has_later_ones(void**) {
  const ParameterSet all;
  expect(all.has(0) && all.has(1000) && all.has_later(), "all");
}

void a_list_has_nothing_else(void**) {
  const ParameterSet some = ParameterSet::of({4, 1});
  for (int32_t index = 0; index < 9; ++index)
    expect_equal(some.has(index), index == 1 || index == 4, "parameter " + std::to_string(index));
  expect(!some.has_later(), "nor later ones");
}

void the_rest_has_what_is_not_taken_and_later_ones(void**) {
  const ParameterSet rest = ParameterSet::all_but(6, [](int32_t index) { return index == 0 || index == 3; });
  for (int32_t index = 0; index < 9; ++index)
    expect_equal(rest.has(index), index != 0 && index != 3, "parameter " + std::to_string(index));
  expect(rest.has_later(), "and later ones");
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {ddp_test(a_set_of_all_has_later_ones), ddp_test(a_list_has_nothing_else),
                              ddp_test(the_rest_has_what_is_not_taken_and_later_ones)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
