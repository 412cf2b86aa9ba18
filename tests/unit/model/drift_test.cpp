// SPDX-License-Identifier: Apache-2.0
// The ranks that are right when replicas differ: hashes in, a verdict out.
#include "model/drift.hpp"

#include "support/check.hpp"

const std::vector<std::string> kNames = {"parameter \"a\"", "parameter \"b\""};

ddp_case(equal_replicas_give_no_verdict) {
  expect(!model::judge(kNames, {{1, 2}, {1, 2}, {1, 2}}), "equal");
  expect(!model::judge(kNames, {{1, 2}}), "one rank");
  expect(!model::judge({}, {{}, {}}), "no tensors");
}

ddp_case(the_minority_and_the_first_tensor_are_named) {
  const auto drift = model::judge(kNames, {{1, 2}, {1, 3}, {1, 2}, {1, 4}});
  expect(drift && drift->text == "parameter \"b\" is different on ranks 1 and 3 from what most ranks hold", drift->text);
  expect(drift->source == 0 && drift->odd == std::vector<int32_t>{1, 3}, "rank 0 is the source");
}

ddp_case(rank_0_may_be_the_odd_one) {
  const auto drift = model::judge(kNames, {{9, 2}, {1, 2}, {1, 2}});
  expect(drift && drift->source == 1 && drift->odd == std::vector<int32_t>{0}, "rank 1 is the source");
  expect_contains(drift->text, "on rank 0 from");
}

ddp_case(a_tie_has_no_source_and_names_all_sides) {
  const auto drift = model::judge(kNames, {{1, 2}, {1, 2}, {5, 2}, {5, 2}});
  expect(drift && drift->source == -1 && drift->odd.empty(), "no source");
  expect_contains(drift->text, "\"a\" has no content that most ranks hold: one on ranks 0 and 1, another on ranks 2 and 3");
  const auto two = model::judge(kNames, {{1, 2}, {5, 2}});
  expect(two->source == -1 && two->text == "parameter \"a\" differs between rank 0 and rank 1", two->text);
}

ddp_case(a_tie_in_a_later_tensor_counts_too) {
  const auto drift = model::judge(kNames, {{1, 2}, {1, 2}, {1, 3}, {9, 3}});
  expect(drift && drift->source == -1, "no source");
  expect_contains(drift->text, "\"a\" is different on rank 3");
}

ddp_case(the_source_is_with_the_most_in_every_tensor) {
  const auto drift = model::judge(kNames, {{7, 2}, {1, 8}, {1, 2}, {1, 2}});  // ranks 0 and 1 are wrong in one tensor each
  expect(drift && drift->source == 2 && drift->odd == std::vector<int32_t>{0, 1}, "rank 2 is the source");
  const auto nobody = model::judge({"x", "y", "z"}, {{9, 1, 1}, {1, 9, 1}, {1, 1, 9}});
  expect(nobody && nobody->source == -1, "each rank is wrong somewhere");
}
