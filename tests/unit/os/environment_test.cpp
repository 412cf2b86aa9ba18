// SPDX-License-Identifier: Apache-2.0
#include "os/environment.hpp"

#include "support/check.hpp"

std::vector<std::string> doubtful(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  return os::doubtful_variables(environment.data());
}

ddp_case(typing_errors_are_named) {
  const std::vector<std::string> texts = doubtful({"PATH=/bin", "DDP_LGO=debug", "DDP_JOINFILE", "DDP_LOG=verbose"});
  expect_equal(texts.size(), size_t{3}, "texts");
  expect_equal(texts[0], std::string("the variable DDP_LGO is not read by libddp; did you mean DDP_LOG?"), "a swap");
  expect_equal(texts[1], std::string("the variable DDP_JOINFILE is not read by libddp; did you mean DDP_JOIN_FILE?"),
               "a gap");
  expect_equal(texts[2], std::string("DDP_LOG is \"verbose\"; it must be debug, info, warning, error or off"), "a level");
}

ddp_case(what_is_right_or_the_programs_own_is_not) {
  expect(doubtful({"DDP_LOG=debug", "DDP_LOG=", "DDP_TOKEN=x", "DDP_TOKEN_FILE=f", "DDP_EXPERIMENT=7", "DDP_SOURCE_DIR=/a",
                   "DPP_LOG=x", "LOG=1", ""})
             .empty(),
         "nothing is said");
}
