// SPDX-License-Identifier: Apache-2.0
// The options of a rule and those that every rule shares in one value, with all defaults: for tests that set both.
#pragma once

#include "optim/custom.hpp"
#include "optim/rules.hpp"

namespace ddp::test {

struct SgdOptions : ddp_sgd_options, ddp_optimizer_options {
  SgdOptions() : ddp_sgd_options(optim::default_sgd_options()), ddp_optimizer_options(optim::default_optimizer_options()) {}
};

struct AdamOptions : ddp_adam_options, ddp_optimizer_options {
  AdamOptions()
      : ddp_adam_options(optim::default_adam_options()), ddp_optimizer_options(optim::default_optimizer_options()) {}
};

struct CustomOptions : ddp_custom_options, ddp_optimizer_options {
  CustomOptions()
      : ddp_custom_options(optim::default_custom_options()), ddp_optimizer_options(optim::default_optimizer_options()) {}
};

}  // namespace ddp::test
