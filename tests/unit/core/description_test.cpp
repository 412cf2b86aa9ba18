// SPDX-License-Identifier: Apache-2.0
// The error text of ranks that differ.
#include "core/description.hpp"

#include "support/check.hpp"

struct Registered {
  float memory[100] = {};
  Parameters table;
  ddp_model_options options{};
  int64_t used = 0;

  Registered& parameter(const std::string& name, int64_t count) {
    table.add_parameter(name, flat_tensor(memory + used, DDP_F32, count), nullptr);
    used += count;
    return *this;
  }
  [[nodiscard]] std::vector<std::string> lines() const { return describe_model(table, options); }
};

std::string difference(const std::vector<std::vector<std::string>>& by_rank) {
  return first_difference(by_rank).value_or("none");
}

ddp_case(equal_models_have_no_difference) {
  Registered a;
  Registered b;
  a.parameter("w", 3).parameter("b", 4);
  b.parameter("w", 3).parameter("b", 4);
  expect_equal(difference({a.lines(), b.lines(), a.lines()}), std::string("none"), "difference");
  expect(unpack_lines(pack_lines(a.lines())) == a.lines(), "lines survive packing");
}

ddp_case(the_first_difference_is_named_with_all_ranks) {
  Registered a;
  Registered b;
  Registered c;
  a.parameter("w", 3).parameter("b", 4);
  b.parameter("w", 3).parameter("b", 5);
  c.parameter("w", 3).parameter("z", 4);
  expect_equal(
      difference({a.lines(), b.lines(), a.lines(), c.lines(), b.lines()}),
      std::string(
          "parameter 1 is \"b\" F32 [4] on ranks 0 and 2, but \"b\" F32 [5] on ranks 1 and 4, but \"z\" F32 [4] on rank 3"),
      "difference");
}

ddp_case(a_missing_parameter_is_named) {
  Registered a;
  Registered b;
  a.parameter("w", 3).parameter("b", 4);
  b.parameter("w", 3);
  expect_contains(difference({a.lines(), b.lines()}), "parameter 1 is \"b\" F32 [4] on rank 0");
}

ddp_case(options_are_compared_after_the_tensors) {
  Registered a;
  Registered b;
  a.parameter("w", 3);
  b.parameter("w", 3);
  b.options.bucket_bytes = 7;
  expect_equal(difference({a.lines(), b.lines()}), std::string("bucket_bytes is 0 on rank 0, but 7 on rank 1"),
               "difference");
}

ddp_case(ranks_read_like_a_sentence) {
  expect_equal(name_ranks({3}), std::string("rank 3"), "one");
  expect_equal(name_ranks({1, 2}), std::string("ranks 1 and 2"), "two");
  expect_equal(name_ranks({1, 2, 5}), std::string("ranks 1, 2 and 5"), "three");
}
