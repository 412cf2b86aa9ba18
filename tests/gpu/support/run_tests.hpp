// The end of a main(): runs the tests, or those whose names match the pattern given as the first argument ("*bits*").
#pragma once

#include <cstddef>

#include "support/cmocka.hpp"

namespace ddp::test::card {

template <size_t count>
int run_matching(const CMUnitTest (&tests)[count], int argc, char** argv) {
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return _cmocka_run_group_tests(argv[0], tests, count, nullptr, nullptr);
}

}  // namespace ddp::test::card
