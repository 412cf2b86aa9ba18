// SPDX-License-Identifier: Apache-2.0
#include "os/module_files.hpp"

#include "support/check.hpp"

ddp_case(modules_are_searched_in_the_named_folders_first) {
  const auto files = os::module_candidates("libx.so", "/a::/b");
  expect_equal(files.at(0), std::string("/a/libx.so"), "first");
  expect_equal(files.at(1), std::string("/b/libx.so"), "second");
  expect_contains(files.at(3), "/ddp/libx.so");
  expect(files.size() == 5, "own folder, its subfolder, and where it was installed");
}

ddp_case(files_are_listed_for_an_error) {
  expect_equal(os::listed({"a", "b"}), std::string("a, b"), "two");
  expect_equal(os::listed({}), std::string(), "none");
}

ddp_case(a_module_that_finds_no_memory_is_not_missing) {
  const Error full =
      os::not_loaded("the module", "x.so: cannot allocate dependency list: Cannot allocate memory", "install it");
  expect_equal(full.status(), DDP_ERROR_OUT_OF_MEMORY, "status");
  const Error missing = os::not_loaded("the module", "x.so: no such file", "install it");
  expect_equal(missing.status(), DDP_ERROR_NOT_SUPPORTED, "status");
  expect_contains(missing.text(), "install it");
}
