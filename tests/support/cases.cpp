// SPDX-License-Identifier: Apache-2.0
// main() of a test whose cases are listed where they are defined: ddp_case in check.hpp, ddp_paths_case in group_paths.hpp.
// `--filter PATTERN` runs those whose names match (`*` and `?`).
#include <cstring>
#include <vector>

#include "support/check.hpp"

namespace {

std::vector<CMUnitTest>& cases() {
  static std::vector<CMUnitTest> all;
  return all;
}

}  // namespace

bool ddp::test::list_case(const char* name, CMUnitTestFunction function) {
  cases().push_back({name, function, nullptr, nullptr, nullptr});
  return true;
}

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--filter") == 0) cmocka_set_test_filter(argv[i + 1]);
  return _cmocka_run_group_tests("tests", cases().data(), cases().size(), nullptr, nullptr);
}
