#include "base/module_files.hpp"

#include "support/check.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

void modules_are_searched_in_the_named_folders_first(void**) {
  const auto files = module_candidates("libx.so", "/a::/b");
  expect_equal(files.at(0), std::string("/a/libx.so"), "first");
  expect_equal(files.at(1), std::string("/b/libx.so"), "second");
  expect_contains(files.at(3), "/ddp/libx.so");
  expect(files.size() == 5, "own folder, its subfolder, and where it was installed");
}

void files_are_listed_for_an_error(void**) {
  expect_equal(listed({"a", "b"}), std::string("a, b"), "two");
  expect_equal(listed({}), std::string(), "none");
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      ddp_test(modules_are_searched_in_the_named_folders_first),
      ddp_test(files_are_listed_for_an_error),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
