// SPDX-License-Identifier: Apache-2.0
#include "core/json_text.hpp"

#include "support/check.hpp"

ddp_case(texts_are_as_json_has_them) {
  expect_equal(json_text(""), std::string("\"\""), "nothing");
  expect_equal(json_text("rank 0"), std::string("\"rank 0\""), "as it is");
  expect_equal(json_text("a\"b\\c"), std::string("\"a\\\"b\\\\c\""), "quotation marks, backslashes");
  expect_equal(json_text(std::string_view("\0\n\x1f\x7f", 4)), std::string("\"\\u0000\\u000a\\u001f\\u007f\""), "controls");
  expect_equal(json_text("\xc3\xa4"), std::string("\"\xc3\xa4\""), "UTF-8");
}
