// SPDX-License-Identifier: Apache-2.0
// Which parameters are exchanged together, and when.
#include "extra/outer/outer.hpp"
#include "support/check.hpp"

ddp_case(fragments_are_consecutive_without_gaps) {
  expect(outer::divide({10, 10, 10, 10}, 2) == std::vector<int32_t>{0, 0, 1, 1}, "halves");
  expect(outer::divide({10, 10, 10, 10}, 1) == std::vector<int32_t>{0, 0, 0, 0}, "one");
  expect(outer::divide({10, 10}, 8) == std::vector<int32_t>{0, 1}, "more fragments than parameters");
  expect(outer::divide({1, 1000, 1, 1}, 3) == std::vector<int32_t>{0, 1, 2, 2}, "one large parameter");
  expect(outer::divide({0, 0, 5}, 4) == std::vector<int32_t>{0, 0, 1}, "empty parameters");
  expect(outer::divide({}, 3).empty(), "no parameters");
}

ddp_case(every_fragment_is_due_once_in_every_steps) {
  for (const int64_t every : {1, 2, 7, 30})
    for (const int32_t fragments : {1, 2, 5, 40})
      for (int32_t index = 0; index < fragments; ++index) {
        int64_t count = 0, first = 0;
        for (int64_t step = 1; step <= 3 * every; ++step)
          if (outer::is_due(step, index, fragments, every)) {
            ++count;
            if (first == 0) first = step;
            expect_equal((step - first) % every, int64_t{0}, "steps between");
          }
        expect_equal(count, int64_t{3}, "times in three periods");
      }
  expect(!outer::is_due(0, 0, 1, 10) && outer::is_due(10, 0, 1, 10), "not before the first step");
}
